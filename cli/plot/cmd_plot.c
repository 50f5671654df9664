/* cmd_plot.c: tgc plot */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "../../runtime/util/line_reader.h"
#include "plot.h"

int cmd_plot(const Args *a, Err *e)
{
        static const char *const other[] = { ".png", ".jpg", ".jpeg", ".pdf" };
        const char *path = opt_str(a, O_OUT);
        const Progress talk = progress_new(a);
        RunLog *run = calloc((size_t)a->n_pos + 1, sizeof *run);
        char *text = NULL;
        size_t size = 0;
        int n = 0, code = run ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory for the runs");
        if (!code && !path)
                code = err_set(e, TGC_USAGE, "plot: -o FILE.svg is missing");
        for (size_t i = 0; i < sizeof other / sizeof *other && path && !code; i++)
                if (text_ends(path, other[i]))
                        code = err_set(e, TGC_USAGE, "--output %s: plot writes SVG, give FILE.svg",
                                       path);
        while (n < a->n_pos && !code) {
                code = run_log_read(&run[n], a->pos[n], e);
                if (!code && run[n].torn)
                        say(&talk, "%s:%d: the line ends too early and is left out\n", a->pos[n],
                            run[n].torn);
                n++;
        }
        FILE *f = code ? NULL : open_memstream(&text, &size);
        if (!code && !f)
                code = err_set(e, TGC_NO_MEMORY, "no memory for the picture");
        if (!code)
                code = plot_svg(f, run, n, opt_flag(a, O_LOG_SCALE), e);
        if (f && fclose(f) && !code)
                code = err_set(e, TGC_NO_MEMORY, "no memory for the picture");
        if (!code)
                code = file_write_atomic(path, text, size, e);
        free(text);
        for (int i = 0; i < n; i++)
                run_log_free(&run[i]);
        free(run);
        return code;
}
