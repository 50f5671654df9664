/* emulate_fiber.h: stacks, and the switch between them.
 *
 * A fiber is entered from the host's own stack and leaves back to it, never to
 * another fiber.  The switch saves what the calling convention says a function
 * keeps, and nothing else: no system call, a few nanoseconds. */
#ifndef TGC_EMULATE_FIBER_H
#define TGC_EMULATE_FIBER_H

#include <sys/mman.h>
#include <unistd.h>

#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined __x86_64__ || defined __aarch64__
/* Pushes the kept registers, stores the stack pointer in *from, and continues where `to` was
 * stored. */
extern "C" void tgc_emulate_switch(void **from, void *to);
#else
#include <ucontext.h>
#endif

#if defined __x86_64__
asm(".text\n"
    ".p2align 4\n"
    ".type tgc_emulate_switch, @function\n"
    "tgc_emulate_switch:\n"
    "        pushq %rbp\n"
    "        pushq %rbx\n"
    "        pushq %r12\n"
    "        pushq %r13\n"
    "        pushq %r14\n"
    "        pushq %r15\n"
    "        movq %rsp, (%rdi)\n"
    "        movq %rsi, %rsp\n"
    "        popq %r15\n"
    "        popq %r14\n"
    "        popq %r13\n"
    "        popq %r12\n"
    "        popq %rbx\n"
    "        popq %rbp\n"
    "        ret\n"
    ".size tgc_emulate_switch, .-tgc_emulate_switch\n");
#elif defined __aarch64__
asm(".text\n"
    ".p2align 4\n"
    ".type tgc_emulate_switch, %function\n"
    "tgc_emulate_switch:\n"
    "        stp x29, x30, [sp, #-160]!\n"
    "        stp x19, x20, [sp, #16]\n"
    "        stp x21, x22, [sp, #32]\n"
    "        stp x23, x24, [sp, #48]\n"
    "        stp x25, x26, [sp, #64]\n"
    "        stp x27, x28, [sp, #80]\n"
    "        stp d8, d9, [sp, #96]\n"
    "        stp d10, d11, [sp, #112]\n"
    "        stp d12, d13, [sp, #128]\n"
    "        stp d14, d15, [sp, #144]\n"
    "        mov x9, sp\n"
    "        str x9, [x0]\n"
    "        mov sp, x1\n"
    "        ldp x19, x20, [sp, #16]\n"
    "        ldp x21, x22, [sp, #32]\n"
    "        ldp x23, x24, [sp, #48]\n"
    "        ldp x25, x26, [sp, #64]\n"
    "        ldp x27, x28, [sp, #80]\n"
    "        ldp d8, d9, [sp, #96]\n"
    "        ldp d10, d11, [sp, #112]\n"
    "        ldp d12, d13, [sp, #128]\n"
    "        ldp d14, d15, [sp, #144]\n"
    "        ldp x29, x30, [sp], #160\n"
    "        ret\n"
    ".size tgc_emulate_switch, .-tgc_emulate_switch\n");
#endif

EMU_NAMESPACE
{
        enum { STACK = 512 * 1024 }; /* -O0 and red zones make frames large */

        struct Context {
#if defined __x86_64__ || defined __aarch64__
                void *sp;
#else
                ucontext_t uc;
#endif
                const void *stack; /* lowest address, for the sanitizer */
                size_t size;
                void *fake; /* the sanitizer's */
        };

        /* Makes c start `entry`, which never returns, on its stack when first entered.  Stacks are
         * whole pages apart; `colour` shifts their tops so that lines used by all fibers do not
         * share one cache set. */
        inline void fiber_start(Context * c, char *stack, int colour, void (*entry)())
        {
                size_t top_at = STACK - colour % 64 * 64;
                c->stack = stack;
                c->size = STACK;
                c->fake = 0;
#ifdef EMU_ASAN
                ASAN_UNPOISON_MEMORY_REGION(stack,
                                            STACK); /* frames of a thread that was given up */
#endif
#if defined __x86_64__
                void **top = (void **)(stack + top_at);
                *--top = 0; /* entry's return address: there is none */
                *--top = (void *)entry;
                for (int i = 0; i < 6; i++)
                        *--top = 0;
                c->sp = top;
#elif defined __aarch64__
                void **top = (void **)(stack + top_at - 160);
                memset(top, 0, 160);
                top[1] = (void *)entry; /* x30 */
                c->sp = top;
#else
                getcontext(&c->uc);
                c->uc.uc_stack.ss_sp = stack;
                c->uc.uc_stack.ss_size = top_at;
                c->uc.uc_link = 0;
                makecontext(&c->uc, entry, 0);
#endif
        }

        /* Switches from one context to the other; returns when something switches back.  ends:
         * nothing will. */
        inline void context_switch(Context * from, Context * to, bool ends)
        {
#ifdef EMU_ASAN
                __sanitizer_start_switch_fiber(ends ? 0 : &from->fake, to->stack, to->size);
#else
                (void)ends;
#endif
#if defined __x86_64__ || defined __aarch64__
                tgc_emulate_switch(&from->sp, to->sp);
#else
                swapcontext(&from->uc, &to->uc);
#endif
#ifdef EMU_ASAN
                __sanitizer_finish_switch_fiber(from->fake, 0, 0);
#endif
        }

        /* First thing in a fiber's entry: learn the stack of the host that entered it. */
        inline void fiber_entered(Context * host)
        {
#ifdef EMU_ASAN
                __sanitizer_finish_switch_fiber(0, &host->stack, &host->size);
#else
                (void)host;
#endif
        }

        /* n stacks, guarded: with an inaccessible page below each; NULL if there is no memory. */
        inline size_t stack_stride() { return STACK + (size_t)sysconf(_SC_PAGESIZE); }

        inline char *stacks_map(int n, bool guarded)
        {
                size_t stride = stack_stride();
                char *p = (char *)mmap(0, n * stride, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
                if (p == MAP_FAILED)
                        return 0;
                for (int i = 0; i < n && guarded; i++)
                        mprotect(p + i * stride, stride - STACK, PROT_NONE);
                return p;
        }

        inline void stacks_unmap(char *p, int n) { munmap(p, n * stack_stride()); }

}  // namespace emu

#endif
