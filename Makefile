# tgc: `make demo` sets up, builds and runs; `make check` tests; `make help` says more.

CC      ?= gcc
BUILD   ?= build
OPT     ?= -O2 -g
WARN     = -Wall -Wextra -pedantic
STD      = -std=c11 -D_GNU_SOURCE
CFLAGS  ?=
LIBS     = -llua5.4 -lcjson -lpcre2-8 -lutf8proc -lxxhash -lm -ldl -lpthread
LUA_INC := $(shell pkg-config --cflags lua5.4 2>/dev/null || echo -I/usr/include/lua5.4)

ifdef SAN
BUILD   := build/san
OPT      = -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
endif
ifdef CI
WARN    += -Werror
endif

DIRS     = ir compiler compiler/read compiler/passes codegen runtime cli
SRC     := $(foreach d,$(DIRS),$(sort $(wildcard $(d)/*.c)))
MAIN     = cli/main.c
OBJ     := $(patsubst %.c,$(BUILD)/%.o,$(SRC)) $(BUILD)/embedded.o
LIB      = $(BUILD)/libtgc_all.a
TESTS   := $(patsubst tests/%.c,$(BUILD)/tests/%,$(sort $(wildcard tests/test_*.c)))
CUH     := $(sort $(wildcard codegen/kernels/*.cuh) $(wildcard codegen/kernels/emulate*.h))
CPUH    := $(sort codegen/kernels/tgc.h $(wildcard codegen/kernels/cpu_*.h))
MODELS  := $(sort $(wildcard models/*.lua))

.PHONY: all demo check check-cuda bless clean help deps

all: $(BUILD)/tgc

$(BUILD)/tgc: $(BUILD)/cli/main.o $(LIB)
	$(CC) $(OPT) $(CFLAGS) -o $@ $< $(LIB) $(LIBS)

$(LIB): $(filter-out $(BUILD)/cli/main.o,$(OBJ))
	@rm -f $@
	@ar rcs $@ $^

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(STD) $(OPT) $(WARN) $(CFLAGS) $(LUA_INC) -MMD -MP -c -o $@ $<

# Kernel headers and models travel inside the binary.
$(BUILD)/embedded.c: scripts/embed.sh $(CUH) $(CPUH) $(MODELS) runtime/rt.h
	@mkdir -p $(@D)
	sh scripts/embed.sh "$(CUH) runtime/rt.h" "$(CPUH) runtime/rt.h" "$(MODELS)" > $@.tmp && mv $@.tmp $@

$(BUILD)/embedded.o: $(BUILD)/embedded.c
	@$(CC) $(STD) -O0 -c -o $@ $<

$(BUILD)/tests/%: tests/%.c tests/test.h $(LIB)
	@mkdir -p $(@D)
	$(CC) $(STD) $(OPT) $(WARN) $(CFLAGS) $(LUA_INC) -Itests -I. -o $@ $< $(LIB) $(LIBS)

clean:
	rm -rf build

-include $(OBJ:.o=.d)
