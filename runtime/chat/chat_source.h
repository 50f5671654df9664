/* chat_source.h: a model's chat templates and the texts of its special tokens.
 *
 * A plan stores them in its section `chat`, which is JSON:
 *
 *      {"template": {"default": TEXT, "tool_use": TEXT ...}, "token": {"bos_token": TEXT ...}}
 *
 * "default" renders a conversation.  "tool_use", if present, renders a conversation with tools.
 * The tokens are variables of every template.  A model without either has no such section. */
#ifndef TGC_CHAT_SOURCE_H
#define TGC_CHAT_SOURCE_H

#include <stddef.h>
#include "../util/err.h"

typedef struct ChatText {
        char *name, *text; /* UTF-8, a NUL behind both */
} ChatText;

typedef struct ChatSource { /* zeroed at first */
        ChatText *template, *token;
        int n_templates, n_tokens;
} ChatSource;

/* name gets this text, in place of one it had; both are copied. */
int chat_add_template(ChatSource *s, const char *name, const char *text, Err *e);
int chat_add_token(ChatSource *s, const char *name, const char *text, Err *e);

/* What transformers finds in a folder: chat_template.jinja and
 * additional_chat_templates/NAME.jinja, else `chat_template` of tokenizer_config.json; the tokens
 * of that file and, where it has no added_tokens_decoder, of special_tokens_map.json. */
int chat_source_folder(ChatSource *s, const char *dir, Err *e);

/* The section.  *text is malloc'ed; NULL where there is nothing to keep. */
int chat_source_pack(const ChatSource *s, char **text, size_t *n, Err *e);
int chat_source_unpack(ChatSource *s, const char *text, size_t n, const char *name, Err *e);

void chat_source_free(ChatSource *s);

const char *chat_template(const ChatSource *s, const char *name); /* or NULL */

#endif
