/* story.c: continues a text, printing each token as it is made. */
#include <stdio.h>
#include <string.h>
#include <tgc.h>

typedef struct Printer {
        Tgc *tgc;
        int previous;
} Printer;

static int print(void *user, int token)
{
        Printer *p = user;
        char text[256];
        if (tgc_is_end(p->tgc, token))
                return 1; /* ends the generation */
        fwrite(text, 1, tgc_decode(p->tgc, p->previous, token, text, sizeof text), stdout);
        p->previous = token;
        return fflush(stdout);
}

int main(int argc, char **argv)
{
        const char *prompt = argc > 2 ? argv[2] : "Once upon a time";
        Tgc *tgc = NULL;
        TgcError error;
        TgcSampling how = tgc_sampling();
        int *ids = NULL, n, code;
        how.temp = 0;
        if (argc < 2)
                return fprintf(stderr, "usage: story PLAN [TEXT]\n"), 2;
        code = tgc_open(&tgc, argv[1], NULL, &error);
        if (!code)
                code = tgc_encode(tgc, prompt, strlen(prompt), &ids, &n, &error);
        if (!code)
                code = tgc_prompt(tgc, ids, n, &error);
        if (!code) {
                Printer printer = { tgc, ids[n - 1] };
                printf("%s", prompt);
                code = tgc_generate(tgc, &how, 60, print, &printer, &error);
                printf("\n");
        }
        if (code)
                fprintf(stderr, "story: %s\n", error.message);
        tgc_free(ids);
        tgc_close(tgc);
        return code;
}
