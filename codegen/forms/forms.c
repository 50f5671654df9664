/* forms.c: adds to a kernel its forms on other architectures, from the rows of forms.def. */
#include "forms.h"

typedef struct Row {
        Family family;
        ArchId arch;
        bool (*adds)(Build *b, const void *problem);
} Row;

static const Row rows[] = {
#define FORM(family, arch, adds) { FAMILY_##family, ARCH_##arch, adds },
#include "forms.def"
#undef FORM
};

bool forms_add(Build *b, Family family, const void *problem)
{
        bool any = false, has[N_ARCHS];
        for (int i = 0; i < N_ARCHS; i++)
                has[i] = form_is(b->form, (ArchId)i); /* written already, or left out there */
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
                if (rows[i].family == family && !has[rows[i].arch])
                        any |= has[rows[i].arch] = rows[i].adds(b, problem);
        if (any)
                form_begin(b, ARCH_ANY, NULL);
        return any;
}
