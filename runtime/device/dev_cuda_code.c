/* dev_cuda_code.c: loads a plan's kernels on the GPU: from the plan's cubins if it has them for
 * this GPU, else from the cache, else compiled by NVRTC. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dev_cuda.h"
#include "nvrtc.h"

/* The plan's cubins for this GPU, or NULL: those of the very architecture, else
 * of an earlier one of the same generation, which the hardware runs as well. */
static const Section *find_cubins(const CudaDevice *c, const Plan *plan)
{
        int generation = 0, best = -1;
        const Section *found = 0;
        char exact[32];

        snprintf(exact, sizeof exact, "cubin.%s", c->arch);
        if ((found = plan_find(plan, exact)))
                return found;
        sscanf(c->arch, "sm_%d", &generation);
        for (int i = 0; i < plan->n_sections; i++) {
                int sm, end = 0;
                if (sscanf(plan->section[i].name, "cubin.sm_%d%n", &sm, &end) == 1 &&
                    !plan->section[i].name[end] && sm / 10 == generation / 10 && sm <= generation &&
                    sm > best) {
                        best = sm;
                        found = &plan->section[i];
                }
        }
        return found;
}

/* Modules of the units that have a cubin, and their kernels; what is loaded stays. */
static int load_modules(CudaDevice *c, const PackFile *cubin, int n, const int *unit_of, Err *e)
{
        const Program *p = c->d.prog;

        if (!c->module) {
                c->n_modules = n;
                c->module = calloc((size_t)n + 1, sizeof *c->module);
                c->fn = calloc((size_t)p->n_kernels + 1, sizeof *c->fn);
        }
        if (!c->module || !c->fn)
                return err_set(e, TGC_NO_MEMORY, "no memory for %d kernels", p->n_kernels);
        for (int i = 0; i < n; i++) {
                if (!cubin[i].data || c->module[i])
                        continue;
                CUresult r = c->api.cuModuleLoadData(&c->module[i], cubin[i].data);
                char doing[256];
                snprintf(doing, sizeof doing,
                         "loading unit %s, compiled for %s, by a driver for CUDA %d.%d",
                         cubin[i].name, c->arch, c->api.driver / 1000, c->api.driver % 1000 / 10);
                if (r) {
                        c->module[i] = 0;
                        return cuda_failed(c, r, doing, e);
                }
        }
        for (int k = 0; k < p->n_kernels; k++) {
                const KernelDef *def = &p->kernel[k];
                if (c->fn[k] || !c->module[unit_of[k]])
                        continue;
                if (c->api.cuModuleGetFunction(&c->fn[k], c->module[unit_of[k]], def->name))
                        return err_set(e, TGC_BAD_FILE, "kernel %.60s is not in unit %.60s",
                                       def->name, def->unit);
                const unsigned smem = dev_form(&c->d, def)->smem;
                if (smem > (unsigned)c->smem_optin)
                        return err_set(e, TGC_NO_DEVICE,
                                       "kernel %.60s needs %u bytes of shared memory, %s has %d: "
                                       "compile the model for this GPU",
                                       def->name, smem, c->d.name, c->smem_optin);
                if (smem > 48 << 10)
                        TRY(cuFuncSetAttribute(c->fn[k], CU_FUNC_MAX_DYNAMIC_SMEM, (int)smem),
                            "reserving shared memory");
        }
        return TGC_OK;
}

/* Modules made from the plan's cubins: names in the pack must be the units'. */
static int load_from_plan(CudaDevice *c, const Plan *plan, const Section *s, Err *e)
{
        Pack k;
        Err why;
        int *unit_of,
                code = code_unpack(&k, plan, s, "cuda",
                                   (const char *const[]) { strchr(s->name, '.') + 1, 0 }, &why);
        if (code) {
                snprintf(c->d.warning, sizeof c->d.warning, "%.100s: it is built again", why.msg);
                return err_set(e, code, "%s", why.msg);
        }
        if (!(code = kernel_units(c->d.prog, &k, &unit_of, e))) {
                code = load_modules(c, k.file, k.n, unit_of, e);
                free(unit_of);
        }
        pack_free(&k);
        return code;
}

void cuda_unload(CudaDevice *c)
{
        for (int i = 0; c->module && i < c->n_modules; i++)
                if (c->module[i])
                        c->api.cuModuleUnload(c->module[i]);
        free(c->module);
        free(c->fn);
        c->module = 0;
        c->fn = 0;
        c->n_modules = 0;
}

/* By unit: has it a kernel that is needed and not there?  Their number. */
static int want_units(const CudaDevice *c, const char *need, const int *unit_of, char *want)
{
        int n = 0;
        for (int k = 0; k < c->d.prog->n_kernels; k++)
                if ((!need || need[k]) && !(c->fn && c->fn[k]) && !want[unit_of[k]]) {
                        want[unit_of[k]] = 1;
                        n++;
                }
        return n;
}

static int load_from_source(CudaDevice *c, const Plan *plan, const char *need, Err *e)
{
        Nvrtc n;
        Pack units, headers;
        int *unit_of = 0, n_want = 0, n_cached = 0,
            code = plan_source(plan, "cuda", &units, &headers, e);

        if (code)
                return code;
        PackFile *cubin = calloc((size_t)units.n, sizeof *cubin);
        char *want = calloc((size_t)units.n + 1, 1);
        code = cubin && want ? kernel_units(c->d.prog, &units, &unit_of, e)
                             : err_set(e, TGC_NO_MEMORY, "no memory for %d cubins", units.n);
        if (!code)
                code = nvrtc_open(&n, c->api.driver, e);
        if (!code && (n_want = want_units(c, need, unit_of, want)))
                code = cuda_compile_units(&n, &units, want, &headers, c->arch, &c->d.opt, cubin,
                                          &n_cached, e);
        if (!code && (code = load_modules(c, cubin, units.n, unit_of, e)) == TGC_NO_DEVICE && e &&
            n.major > c->api.driver / 1000) {
                size_t used = strlen(e->msg);
                snprintf(e->msg + used, sizeof e->msg - used,
                         "; NVRTC %d.%d is newer than the driver: update the "
                         "driver or install the CUDA %d toolkit",
                         n.major, n.minor, c->api.driver / 1000);
        }
        c->n_units += n_want;
        c->n_cached += n_cached;
        cubins_free(cubin, units.n);
        free(want);
        free(unit_of);
        pack_free(&units);
        pack_free(&headers);
        return code;
}

static bool is_there(const CudaDevice *c, const char *need)
{
        int k = 0;
        while (k < c->d.prog->n_kernels && ((need && !need[k]) || c->fn[k]))
                k++;
        return k == c->d.prog->n_kernels;
}

int cuda_load(Device *d, const Plan *plan, const char *need, Err *e)
{
        double start = clock_ms();
        ENTER;
        if (c->fn && is_there(c, need))
                return TGC_OK;
        if (!c->fn) {
                const Section *s = d->opt.from_source ? 0 : find_cubins(c, plan);
                c->d.arch = arch_of(s ? s->name + strlen("cubin.") : c->arch);
                if (s && !load_from_plan(c, plan, s, 0)) {
                        snprintf(d->note, sizeof d->note, "%s from the plan, %.3f s", s->name,
                                 (clock_ms() - start) / 1e3);
                        return TGC_OK;
                }
                cuda_unload(c);
                c->d.arch = arch_of(c->arch);
        }
        int code = load_from_source(c, plan, need, e), n = c->n_units - c->n_cached;
        c->load_ms += clock_ms() - start;
        snprintf(d->note, sizeof d->note, "%d unit%s compiled, %d from the cache, %.3f s", n,
                 n == 1 ? "" : "s", c->n_cached, c->load_ms / 1e3);
        return code;
}
