# library.mk: make lib, make install: libtgc for other programs, with what runtime/tgc.h declares and nothing else.

PREFIX     ?= /usr/local
BINDIR     ?= $(PREFIX)/bin
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR    ?= $(PREFIX)/share

VERSION := $(shell sed -n 's/^\#define TGC_VERSION "\(.*\)"/\1/p' runtime/tgc.h)
SOVERSION := $(firstword $(subst ., ,$(VERSION)))
LIB_LIBS = -lcjson -lpcre2-8 -lutf8proc -lxxhash -lm -ldl -lpthread

PIC_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(filter runtime/%,$(SRC)))
LIBTGC  := $(BUILD)/libtgc.a $(BUILD)/libtgc.so.$(VERSION) $(BUILD)/tgc.pc

.PHONY: lib install uninstall

lib: $(LIBTGC)

# The names that tgc.h declares, one a line.
$(BUILD)/libtgc.names: runtime/tgc.h
	@mkdir -p $(@D)
	@$(CC) -E -P $< | grep -o 'tgc_[a-z0-9_]*(' | tr -d '(' | sort -u > $@

$(BUILD)/libtgc.map: $(BUILD)/libtgc.names
	@sed 's/.*/        &;/' $< | { echo 'TGC_$(SOVERSION) {'; echo '    global:'; cat; echo '    local: *;'; echo '};'; } > $@

$(BUILD)/libtgc.so.$(VERSION): $(PIC_OBJ) $(BUILD)/libtgc.map
	$(Q)$(CC) -shared $(OPT) $(CFLAGS) -Wl,-soname,libtgc.so.$(SOVERSION) -Wl,--version-script=$(BUILD)/libtgc.map \
	        -Wl,-z,defs -o $@ $(PIC_OBJ) $(LIB_LIBS)

# One object whose other names are local, so that they cannot meet those of the program.
$(BUILD)/libtgc.a: $(PIC_OBJ) $(BUILD)/libtgc.names
	@ld -r -o $(BUILD)/libtgc.o $(PIC_OBJ)
	@objcopy --keep-global-symbols=$(BUILD)/libtgc.names $(BUILD)/libtgc.o
	@rm -f $@ && ar rcs $@ $(BUILD)/libtgc.o

# Written anew each time: it names the folders that this make is told.
.PHONY: $(BUILD)/tgc.pc
$(BUILD)/tgc.pc:
	@mkdir -p $(@D)
	@{ echo 'prefix=$(PREFIX)'; echo 'libdir=$(LIBDIR)'; echo 'includedir=$(INCLUDEDIR)'; echo; \
	   echo 'Name: tgc'; echo 'Description: runs and trains compiled transformers'; echo 'Version: $(VERSION)'; \
	   echo 'Cflags: -I$${includedir}'; echo 'Libs: -L$${libdir} -ltgc'; echo 'Libs.private: $(LIB_LIBS)'; } > $@

install: $(BUILD)/tgc lib
	install -d '$(DESTDIR)$(BINDIR)' '$(DESTDIR)$(LIBDIR)/pkgconfig' '$(DESTDIR)$(INCLUDEDIR)' \
	        '$(DESTDIR)$(DATADIR)/man/man1' '$(DESTDIR)$(DATADIR)/doc/tgc' \
	        '$(DESTDIR)$(DATADIR)/bash-completion/completions' '$(DESTDIR)$(DATADIR)/zsh/site-functions' \
	        '$(DESTDIR)$(DATADIR)/fish/vendor_completions.d'
	install -m 755 $(BUILD)/tgc '$(DESTDIR)$(BINDIR)'
	install -m 644 runtime/tgc.h '$(DESTDIR)$(INCLUDEDIR)'
	install -m 644 $(BUILD)/libtgc.a '$(DESTDIR)$(LIBDIR)'
	install -m 755 $(BUILD)/libtgc.so.$(VERSION) '$(DESTDIR)$(LIBDIR)'
	ln -sf libtgc.so.$(VERSION) '$(DESTDIR)$(LIBDIR)/libtgc.so.$(SOVERSION)'
	ln -sf libtgc.so.$(SOVERSION) '$(DESTDIR)$(LIBDIR)/libtgc.so'
	install -m 644 $(BUILD)/tgc.pc '$(DESTDIR)$(LIBDIR)/pkgconfig'
	install -m 644 README.md SECURITY.md $(wildcard docs/*.md) '$(DESTDIR)$(DATADIR)/doc/tgc'
	$(BUILD)/tgc help --man > '$(DESTDIR)$(DATADIR)/man/man1/tgc.1'
	$(BUILD)/tgc help --completion bash > '$(DESTDIR)$(DATADIR)/bash-completion/completions/tgc'
	$(BUILD)/tgc help --completion zsh > '$(DESTDIR)$(DATADIR)/zsh/site-functions/_tgc'
	$(BUILD)/tgc help --completion fish > '$(DESTDIR)$(DATADIR)/fish/vendor_completions.d/tgc.fish'

uninstall:
	rm -f '$(DESTDIR)$(BINDIR)/tgc' '$(DESTDIR)$(INCLUDEDIR)/tgc.h' '$(DESTDIR)$(LIBDIR)'/libtgc.* \
	        '$(DESTDIR)$(LIBDIR)/pkgconfig/tgc.pc' '$(DESTDIR)$(DATADIR)/man/man1/tgc.1' \
	        '$(DESTDIR)$(DATADIR)/bash-completion/completions/tgc' '$(DESTDIR)$(DATADIR)/zsh/site-functions/_tgc' \
	        '$(DESTDIR)$(DATADIR)/fish/vendor_completions.d/tgc.fish'
	rm -rf '$(DESTDIR)$(DATADIR)/doc/tgc'
