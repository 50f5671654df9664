/* peft_config.h: what adapter_config.json (PEFT's LoraConfig) or a line "r=16,alpha=32,..." says.
 *
 * Every key is used, or known to change nothing that tgc reads, or refused with its value. */
#ifndef TGC_PEFT_CONFIG_H
#define TGC_PEFT_CONFIG_H

#include <stdbool.h>
#include "../util/err.h"

typedef struct PeftConfig PeftConfig;

/* dir/adapter_config.json */
int peft_config_read(PeftConfig **out, const char *dir, Err *e);
int peft_config_parse(PeftConfig **out, const char *text, size_t n, const char *name, Err *e);
/* r=16,alpha=16,dropout=0.1,rslora=1,targets=all-linear | NAME,NAME... | a regular expression */
int peft_config_line(PeftConfig **out, const char *line, Err *e);
void peft_config_free(PeftConfig *c);

double peft_config_dropout(const PeftConfig *c);
/* The rank of a linear's adapter, 0: it has none; *scale what its result is multiplied by.  module:
 * its path (model.layers.0.mlp.up_proj); output: it makes the logits, which all-linear leaves
 * out. */
int peft_config_rank(PeftConfig *c, const char *module, bool output, double *scale);
/* TGC_BAD_FILE where a regular expression could not be matched with one of those modules. */
int peft_config_failed(const PeftConfig *c, Err *e);
bool peft_config_all_linear(const PeftConfig *c);
/* A name among the targets that no module asked for so far has; NULL: none. */
const char *peft_config_unmet(const PeftConfig *c);
/* As PEFT reads it, on one line or several; base: the model's name or NULL.  Caller frees; NULL: no
 * memory. */
char *peft_config_text(const PeftConfig *c, const char *base, bool lines);

#endif
