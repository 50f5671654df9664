# tgc: `make demo` sets up, builds and runs; `make check` tests; `make help` says more.

CC      ?= gcc
BUILD   ?= build
OPT     ?= -O2 -g
# A test's own code, which runs for a moment.
TEST_OPT ?= -O0 -g1
WARN     = -Wall -Wextra -pedantic
STD      = -std=c11 -D_GNU_SOURCE
CFLAGS  ?=
LIBS     = $(LUA_LIB) -lcjson -lpcre2-8 -lutf8proc -lxxhash -lm -ldl -lpthread
LUA_INC := $(shell sh scripts/lua.sh --cflags)
LUA_LIB := $(shell sh scripts/lua.sh --libs)

ifneq ($(filter-out no,$(SAN)),)
BUILD   := build/san
OPT      = -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
TEST_OPT := $(OPT)
endif
ifdef CI
WARN    += -Werror
endif

CLI      = cli $(addprefix cli/,load run chat train data objective eval quantize export check bench show plot)
DIRS     = ir compiler compiler/read compiler/passes \
           codegen/lower codegen/ops codegen/forms codegen/program \
           runtime runtime/util runtime/plan runtime/weights runtime/tokenizer runtime/grammar runtime/chat \
           runtime/device runtime/session runtime/batch $(CLI)
SRC     := $(foreach d,$(DIRS),$(sort $(wildcard $(d)/*.c)))
MAIN     = cli/main.c
OBJ     := $(patsubst %.c,$(BUILD)/%.o,$(SRC)) $(BUILD)/embedded.o $(BUILD)/version.o
LIB      = $(BUILD)/libtgc_all.a
TESTS   := $(patsubst tests/%.c,$(BUILD)/tests/%,$(sort $(wildcard tests/test_*.c)))
TESTH   := $(sort $(wildcard tests/*.h))
CUH     := $(sort $(wildcard codegen/kernels/*/*.cuh codegen/kernels/emulate/*.h codegen/kernels/emulate/*.cpp))
CPUH    := $(sort $(wildcard codegen/kernels/cpu/*.h))
SHARED  := codegen/kernels/common/dynamic_map.h runtime/rt.h runtime/weights/block_decode.h
KERNELS := $(patsubst %/,-I%,$(sort $(wildcard codegen/kernels/*/)))
MODELS  := $(sort $(wildcard models/*.lua))
PAGE    := $(sort $(wildcard cli/show/html/*))

.PHONY: all kernel-includes format formatted lint fuzz demo check check-built check-shared quick check-cuda bless docs dist clean help deps

all: $(BUILD)/tgc

$(BUILD)/tgc: $(BUILD)/cli/main.o $(LIB)
	$(Q)$(CC) $(OPT) $(CFLAGS) -o $@ $< $(LIB) $(LIBS)

$(LIB): $(filter-out $(BUILD)/cli/main.o,$(OBJ))
	@rm -f $@
	@ar rcs $@ $^

# V=1 shows the commands.
Q = $(if $(V),,@echo "  $(if $(filter %.o,$@),CC,LD) $@";)

# Vectors that its inlined functions take: gcc 4.6 passed them in another way.
$(BUILD)/runtime/init.o: CFLAGS += -Wno-psabi

# libtgc is made of the same objects (scripts/library.mk).
$(BUILD)/runtime/%.o: PIC = -fPIC -fno-semantic-interposition

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(STD) $(OPT) $(PIC) $(WARN) $(CFLAGS) $(LUA_INC) -MMD -MP -c -o $@ $<

# Kernel headers and models travel inside the binary.
$(BUILD)/embedded.c: scripts/embed.sh $(CUH) $(CPUH) $(MODELS) $(PAGE) $(SHARED)
	@mkdir -p $(@D)
	@sh scripts/embed.sh "$(CUH) $(SHARED)" "$(CPUH) $(SHARED)" "$(MODELS)" "$(PAGE)" > $@.tmp && mv $@.tmp $@

$(BUILD)/embedded.o: $(BUILD)/embedded.c
	@$(CC) $(STD) -O0 -c -o $@ $<

# The commit is that of the checkout, or of the file COMMIT in an archive; written when it is another one.
COMMIT  := $(shell git describe --always --dirty --abbrev=10 --exclude '*' 2>/dev/null || cat COMMIT 2>/dev/null || echo unknown)
ifneq ($(COMMIT),$(shell cat $(BUILD)/commit 2>/dev/null))
.PHONY: $(BUILD)/version.o
endif
$(BUILD)/version.o: scripts/version.sh
	@mkdir -p $(@D)
	@sh scripts/version.sh '$(COMMIT)' | $(CC) $(STD) $(OPT) $(CFLAGS) -x c -c -o $@ - && echo '$(COMMIT)' > $(BUILD)/commit

# Each target by itself: what they include of the compiler and of the runtime shares names.
FUZZ_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard tests/fuzz/*.c)))
$(FUZZ_OBJ): private OPT = $(TEST_OPT)
$(BUILD)/tests/test_fuzz: $(FUZZ_OBJ)
$(BUILD)/tests/test_fuzz: TEST_FLAGS = $(FUZZ_OBJ)
$(BUILD)/tests/%: tests/%.c $(TESTH) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(CC) $(STD) $(TEST_OPT) $(WARN) $(CFLAGS) $(LUA_INC) $(TEST_FLAGS) -Itests -I. -o $@ $< $(LIB) $(LIBS)

# Targets of libFuzzer; the library is built with clang and the sanitizers in a folder of its own.  For long runs over
# what such a run has found: with CMP=no no comparison is traced, which takes half of the time, and with SAN=no there are
# no sanitizers either, only what the targets themselves check: three to eight times as fast.  What these find new is in
# build/fuzz/found as well, and the next run with the sanitizers begins with all of it.
FUZZ    ?= $(patsubst tests/fuzz/%.c,%,$(sort $(wildcard tests/fuzz/*.c)))
TIME    ?= 60
CMP     ?= yes
NO_SAN   = $(filter no,$(SAN))
NO_CMP   = $(NO_SAN)$(filter no,$(CMP))
FUZZ_IN  = build/fuzz$(if $(NO_SAN),-bare,$(if $(NO_CMP),-long))
COMMA   := ,
FUZZ_OPT = -O2 -g -fno-omit-frame-pointer $(if $(NO_SAN),,-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all)
FUZZ_COV = $(if $(NO_CMP),-fsanitize-coverage=inline-8bit-counters$(COMMA)indirect-calls$(COMMA)pc-table,-fsanitize=fuzzer-no-link)
# Without the sanitizers libFuzzer would put strcmp of its own, slow and traced, for libc's: its main alone is linked.
FUZZ_LINK = $(if $(NO_SAN),$(FUZZ_COV),-fsanitize=fuzzer $(if $(NO_CMP),-fno-sanitize-coverage=trace-cmp))
FUZZ_MAIN = $(if $(NO_SAN),$(shell clang --print-runtime-dir)/libclang_rt.fuzzer-$(shell uname -m).a -lstdc++)

fuzz:
	@$(MAKE) --no-print-directory BUILD=$(FUZZ_IN) CC="$(CCACHE) clang" OPT="$(FUZZ_OPT) $(FUZZ_COV)" \
	        $(FUZZ:%=$(FUZZ_IN)/target/%)
	@for f in $(FUZZ); do mkdir -p build/fuzz/found/$$f && echo "== $$f" && \
	        ASAN_OPTIONS=quarantine_size_mb=16:malloc_context_size=8:$$ASAN_OPTIONS $(FUZZ_IN)/target/$$f \
	        -max_total_time=$(TIME) -timeout=20 -rss_limit_mb=2048 -malloc_limit_mb=600 -print_final_stats=1 -print_funcs=0 -close_fd_mask=1 \
	        -artifact_prefix=build/fuzz/found/$$f. build/fuzz/found/$$f tests/fuzz/seeds/$$f || exit 1; done

# What these compare is no byte of an input, and tracing it takes half of their time.
NO_BYTES = $(filter-out ir/parse.c ir/print.c,$(filter ir/% codegen/% compiler/%.c,$(filter-out compiler/read/%,$(SRC))))
$(NO_BYTES:%.c=$(FUZZ_IN)/%.o): CFLAGS += -fno-sanitize-coverage=trace-cmp

$(FUZZ_IN)/target/%: tests/fuzz/%.c $(wildcard tests/fuzz/*.h) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(CC) $(STD) $(FUZZ_OPT) $(FUZZ_LINK) -DFUZZ_ALONE \
	        $(if $(shell grep model.h $<),-Wl$(COMMA)--wrap=lua_load) $(if $(shell grep wrap_specs_of $<),-Wl$(COMMA)--wrap=specs_of) \
	        $(LUA_INC) -o $@ $< $(LIB) $(LIBS) $(FUZZ_MAIN)

# The C kernels are built as generated code is.
$(BUILD)/tests/test_emulate: TEST_FLAGS = -DKERNEL_INCLUDES='"$(KERNELS)"'
# Without -g, which takes as long as the rest.  Some take ten times as long to optimise as to run; FULL=1: as for users.
CPU_OPT  = -O2
ifndef FULL
$(patsubst %,$(BUILD)/tests/test_cpu_%,attention products stored stored_int8): CPU_OPT = -O0 -DTGC_CALLS
$(BUILD)/tests/test_cpu_amx: CPU_OPT = -Og
endif
$(BUILD)/tests/test_cpu_%: TEST_FLAGS = -std=gnu11 $(if $(SAN),,-g0) $(CPU_OPT) -march=native -fno-math-errno -fno-trapping-math -Wno-missing-field-initializers $(KERNELS) -Iruntime -Iruntime/weights

# clang-format 14; tables of instructions and generated files are left alone.
FORMATTED = $(filter-out runtime/tokenizer/tok_unicode.h,$(shell git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' | grep -v '^examples/'))
format:
	clang-format -i $(FORMATTED)

formatted:
	@printf '%s\n' $(FORMATTED)

lint:
	bash tests/test_layout.sh
	cppcheck --enable=warning,portability,performance --std=c11 --inline-suppr -q --error-exitcode=1 \
	        --suppress=missingInclude --suppressions-list=tests/lint.suppress -D_GNU_SOURCE -I. \
	        ir compiler codegen/lower codegen/ops codegen/forms codegen/program runtime cli

# For who compiles a kernel header alone: nvcc $$(make -s kernel-includes) ...
kernel-includes:
	@echo $(KERNELS)

# ---- for people ----------------------------------------------------------

help:
	@echo "make            build build/tgc"
	@echo "make demo       set up, build, compile the example model, generate text"
	@echo "make check      set up, build, run every test that needs no GPU (SAN=1: under sanitizers)"
	@echo "make quick      the tests that start no compiler: half a minute"
	@echo "make check-cuda the tests that need one"
	@echo "make lib        libtgc.a, libtgc.so and tgc.pc, for programs of your own (docs/library.md)"
	@echo "make install    tgc, the library, man page and completion (PREFIX=/usr/local, DESTDIR=); make uninstall"
	@echo "make dist       build/tgc-dist.tar.gz: the binary with the libraries it needs"
	@echo "make format     clang-format every C and CUDA file; make lint: say what it would change, and cppcheck"
	@echo "make fuzz       fuzz the readers with clang: FUZZ=NAME one of tests/fuzz, TIME=seconds"
	@echo "make docs       rewrite the reference in docs/graph-language.md"
	@echo "make bless      rewrite the second halves of the pass tests; read the diff"

deps:
	@sh scripts/deps.sh

demo: deps
	@$(MAKE) --no-print-directory -j2 $(BUILD)/tgc
	sh scripts/demo.sh $(BUILD)/tgc

check: deps
	@$(MAKE) --no-print-directory -j2 check-built

check-built: $(BUILD)/tgc $(TESTS)
	@bash tests/run.sh $(BUILD)

# Those over ../shared/data alone.
DATA_TESTS := $(patsubst tests/%.c,%,$(shell grep -lE '^TEST_(DATA|SHARED)' tests/test_*.c))

check-shared: $(BUILD)/tgc $(patsubst %,$(BUILD)/tests/%,$(DATA_TESTS))
	@TGC_TEST_SHARED=only bash tests/run.sh $(BUILD) $(DATA_TESTS)

# What a change of the compiler or of a reader breaks first.  No test of these starts a compiler.
QUICK = $(patsubst %,test_%,ir grad passes schedule read read_errors describe tables token_axis families weight_map weight_export formats checkpoints quant_folders quantize \
	tokenizer tokenizer_files tokenizer_parts tokenizer_scan tokenizer_train plan cpu_products cpu_attention cpu_rows cpu_experts cpu_update cpu_team)

quick: $(BUILD)/tgc $(patsubst %,$(BUILD)/tests/%,$(QUICK))
	@CC=/nonexistent CXX=/nonexistent bash tests/run.sh $(BUILD) $(QUICK)

check-cuda: $(BUILD)/tgc
	@bash tests/cuda.sh $(BUILD)

# The reference of docs/graph-language.md, as tgc has it now.
docs: $(BUILD)/tgc
	@sh scripts/docs.sh $(BUILD)/tgc

bless: $(BUILD)/tests/test_passes
	BLESS=1 $(BUILD)/tests/test_passes

# The shared libraries beside the binary, for machines without the packages.
dist: $(BUILD)/tgc
	@rm -rf $(BUILD)/dist && mkdir -p $(BUILD)/dist/lib
	cp $(BUILD)/tgc $(BUILD)/dist/tgc.bin
	ldd $(BUILD)/tgc | awk '/=> \// { print $$3 }' | grep -E 'lua|cjson|pcre2|utf8proc|xxhash' | xargs -I{} cp -L {} $(BUILD)/dist/lib/
	printf '#!/bin/sh\nd=$$(dirname "$$(readlink -f "$$0")")\nLD_LIBRARY_PATH=$$d/lib exec "$$d/tgc.bin" "$$@"\n' > $(BUILD)/dist/tgc
	chmod +x $(BUILD)/dist/tgc
	cp -r README.md models docs $(BUILD)/dist && rm -rf $(BUILD)/dist/docs/notebook
	mkdir $(BUILD)/dist/examples && cp -r examples/shakespeare $(BUILD)/dist/examples
	tar -C $(BUILD) -czf $(BUILD)/tgc-dist.tar.gz dist

include scripts/library.mk

clean:
	rm -rf build

-include $(OBJ:.o=.d) $(FUZZ_OBJ:.o=.d)
