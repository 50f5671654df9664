/* chat.h: renders a conversation as the text that a model was trained on, by its chat template.
 *
 * The text equals, byte for byte, that of transformers 5.24's apply_chat_template for the same
 * template, messages and variables.  What cannot be rendered so is refused, with the template's
 * line and column.  Templates, messages and variables may be hostile: depth, steps, memory and text
 * are limited (jinja.h).  A ChatTemplate is read-only: any number of threads may render with it. */
#ifndef TGC_CHAT_H
#define TGC_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../util/err.h"
#include "../util/json.h"
#include "chat_source.h"

typedef struct ChatTemplate ChatTemplate;

/* name begins every message (a path), and is copied, as the text is. */
int chat_template_new(ChatTemplate **out, const char *text, size_t n, const char *name, Err *e);
void chat_template_free(ChatTemplate *t);

typedef struct ChatAsk {
        /* a list of messages, or an object with "messages" and perhaps "tools" and "documents" */
        Json conversation;
        Json vars;                /* an object: enable_thinking and the like; or not there */
        const ChatSource *source; /* whose tokens are variables; NULL: none */
        bool generation_prompt;   /* the text ends where the model's answer begins */
        int64_t now;              /* seconds since 1970, for strftime_now */
} ChatAsk;

typedef struct ChatRendered { /* zeroed at first */
        char *text;           /* UTF-8, a NUL behind it */
        size_t n;
        size_t *span; /* of each {% generation %}: its first byte in text, the one behind it */
        int n_spans;
} ChatRendered;

int chat_render(const ChatTemplate *t, const ChatAsk *ask, ChatRendered *out, Err *e);
void chat_rendered_free(ChatRendered *r);

bool chat_has_tools(Json conversation); /* is "tools" a list there? */

#endif
