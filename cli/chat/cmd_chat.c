/* cmd_chat.c: tgc chat */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "../../runtime/util/file.h"
#include "chat.h"
#include "../run/stop_text.h"

enum { MOST_MODELS = 2, NARROW = 100 };

typedef struct Talk {
        const Args *a;
        ChatModel model[MOST_MODELS];
        int n_models;
        cJSON *said[MOST_MODELS]; /* messages, each with its own answers */
        Lines lines;
        FILE *log;
        bool leave;
} Talk;

/* ---- messages ---- */

static int no_memory(Err *e) { return err_set(e, TGC_NO_MEMORY, "no memory for the messages"); }

static cJSON *message(const char *role, const char *text)
{
        cJSON *m = cJSON_CreateObject();
        if (m && cJSON_AddStringToObject(m, "role", role) &&
            cJSON_AddStringToObject(m, "content", text))
                return m;
        cJSON_Delete(m);
        return NULL;
}

static const char *role_of(const cJSON *m)
{
        const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(m, "role"));
        return s ? s : "";
}

static int add(cJSON *list, const char *role, const char *text, Err *e)
{
        cJSON *m = message(role, text);
        if (m && cJSON_AddItemToArray(list, m))
                return TGC_OK;
        cJSON_Delete(m);
        return no_memory(e);
}

static bool last_is(const cJSON *list, const char *role)
{
        int n = cJSON_GetArraySize(list);
        return n && !strcmp(role_of(cJSON_GetArrayItem(list, n - 1)), role);
}

static void drop_last(cJSON *list)
{
        cJSON_DeleteItemFromArray(list, cJSON_GetArraySize(list) - 1);
}

/* In place of the one that is there; empty: none. */
static int set_system(cJSON *list, const char *text, Err *e)
{
        if (cJSON_GetArraySize(list) && !strcmp(role_of(cJSON_GetArrayItem(list, 0)), "system"))
                cJSON_DeleteItemFromArray(list, 0);
        if (!*text)
                return TGC_OK;
        cJSON *m = message("system", text);
        if (m && cJSON_InsertItemInArray(list, 0, m))
                return TGC_OK;
        cJSON_Delete(m);
        return no_memory(e);
}

/* ---- the log ---- */

static void log_turn(Talk *t, const char *who, const char *text)
{
        if (!t->log)
                return;
        fprintf(t->log, "## %s\n\n%s\n\n", who, text);
        fflush(t->log);
}

static int log_open(Talk *t, Err *e)
{
        const char *path = opt_str(t->a, O_CHAT_LOG);
        char when[64];
        time_t now = time(NULL);
        struct tm tm;
        if (!path)
                return TGC_OK;
        if (!(t->log = fopen(path, "a")))
                return err_set(e, TGC_IO, "--log %s: %s", path, strerror(errno));
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &tm));
        fprintf(t->log, "# tgc chat, %s\n\n", when);
        for (int i = 0; i < t->n_models; i++)
                fprintf(t->log, "- %s: --temp %s --top-p %s, seed %llu\n", t->model[i].name,
                        opt_str(t->a, O_TEMP), opt_str(t->a, O_TOP_P),
                        (unsigned long long)t->model[i].how.s.seed);
        fprintf(t->log, "\n");
        return ferror(t->log) ? err_set(e, TGC_IO, "--log %s: %s", path, strerror(errno)) : TGC_OK;
}

/* ---- answers ---- */

static void put(void *to, const char *text, size_t n)
{
        (void)to;
        put_generated(text, n);
        fflush(stdout);
}

static void say_rates(const Talk *t, const ChatModel *m)
{
        Progress talk = progress_new(t->a);
        if (!strcmp(m->stop, "context"))
                say(&talk, "%s: context full (%d tokens): /undo and /reset make room\n", m->name,
                    m->ctx);
        if (m->shifts)
                say(&talk, "%s: context of %d tokens shifted %d time%s\n", m->name, m->ctx,
                    m->shifts, m->shifts == 1 ? "" : "s");
        if (opt_flag(t->a, O_VERBOSE))
                say(&talk,
                    "%s: prompt %d tokens, %d of them kept, %.1f tok/s; answer %d tokens, %.1f "
                    "tok/s\n",
                    m->name, m->n_prompt, m->n_kept,
                    m->prompt_s > 0 ? (m->n_prompt - m->n_kept) / m->prompt_s : 0., m->n_said,
                    m->answer_s > 0 ? m->n_said / m->answer_s : 0.);
}

static int answer_one(Talk *t, int i, bool stream, Err *e)
{
        ChatModel *m = &t->model[i];
        char *text = cJSON_PrintUnformatted(t->said[i]);
        if (!text)
                return no_memory(e);
        int code = chat_answer(m, text, strlen(text), stream ? put : NULL, NULL, e);
        free(text);
        if (code)
                return code;
        char *clean = NULL;
        size_t n;
        /* as text that a message can hold: UTF-8, without NUL */
        if ((code = tokenizer_text(m->l.tok, m->said, m->n_said, &clean, &n, e)))
                return code;
        if (!strcmp(m->stop, "stop")) { /* what ended it is no part of it */
                const OptionValue *stop = &t->a->v[O_STOP];
                const size_t at = stop_find(stop->list, stop->n, clean, n);
                n = at < n ? at : n;
                clean[n] = 0;
        }
        for (size_t j = 0; j < n; j++)
                if (!clean[j])
                        clean[j] = ' ';
        code = add(t->said[i], "assistant", clean, e);
        log_turn(t, m->name, clean);
        free(clean);
        return code;
}

static int answer_all(Talk *t, Err *e)
{
        const int width = t->n_models > 1 ? terminal_width() : 0;
        const bool columns = width >= NARROW;
        int code = TGC_OK;
        for (int i = 0; i < t->n_models && !code && !signal_seen(); i++) {
                if (t->n_models > 1 && !columns)
                        print("%s==> %s <==\n", i ? "\n" : "", t->model[i].name);
                code = answer_one(t, i, !columns, e);
                if (!code && !columns)
                        printf("\n");
        }
        if (!code && columns && t->model[1].answer)
                put_columns((const char *const[]) { t->model[0].name, t->model[1].name },
                            (const char *const[]) { t->model[0].answer, t->model[1].answer },
                            width);
        if (t->lines.tty)
                printf("\n");
        for (int i = 0; i < t->n_models && !code; i++)
                if (t->model[i].stop)
                        say_rates(t, &t->model[i]);
        const int seen = signal_seen();
        signals_forget();
        if (seen && seen != SIGINT)
                return 128 + seen;
        return code ? code : out_done(e);
}

/* A conversation that a template refuses, or that is too long, is the user's to change. */
static int answer(Talk *t, Err *e)
{
        int before[MOST_MODELS], code;
        for (int i = 0; i < t->n_models; i++)
                before[i] = cJSON_GetArraySize(t->said[i]);
        code = answer_all(t, e);
        if (code != TGC_BAD_FILE && code != TGC_USAGE)
                return code;
        say_error(e->msg);
        for (int i = 0; i < t->n_models; i++) {
                while (cJSON_GetArraySize(t->said[i]) > before[i])
                        drop_last(t->said[i]);
                if (last_is(t->said[i], "user"))
                        drop_last(t->said[i]);
        }
        return t->lines.tty ? TGC_OK : code;
}

static int ask(Talk *t, const char *text, Err *e)
{
        int code = TGC_OK;
        for (int i = 0; i < t->n_models && !code; i++)
                code = add(t->said[i], "user", text, e);
        log_turn(t, "You", text);
        return code ? code : answer(t, e);
}

/* ---- commands ---- */

static int c_system(Talk *t, const char *text, Err *e)
{
        int code = TGC_OK;
        for (int i = 0; i < t->n_models && !code; i++)
                code = set_system(t->said[i], text, e);
        log_turn(t, "System", *text ? text : "(none)");
        return code;
}

static int c_reset(Talk *t, const char *text, Err *e)
{
        (void)text, (void)e;
        for (int i = 0; i < t->n_models; i++)
                while (cJSON_GetArraySize(t->said[i]) &&
                       !(cJSON_GetArraySize(t->said[i]) == 1 && last_is(t->said[i], "system")))
                        drop_last(t->said[i]);
        log_turn(t, "Reset", "");
        return TGC_OK;
}

static int c_undo(Talk *t, const char *text, Err *e)
{
        Progress talk = progress_new(t->a);
        (void)text, (void)e;
        if (!last_is(t->said[0], "assistant"))
                say(&talk, "there is no answer to take back\n");
        for (int i = 0; i < t->n_models; i++) {
                if (last_is(t->said[i], "assistant"))
                        drop_last(t->said[i]);
                if (last_is(t->said[i], "user"))
                        drop_last(t->said[i]);
        }
        return TGC_OK;
}

static int c_regen(Talk *t, const char *text, Err *e)
{
        Progress talk = progress_new(t->a);
        (void)text;
        for (int i = 0; i < t->n_models; i++)
                if (last_is(t->said[i], "assistant"))
                        drop_last(t->said[i]);
        if (last_is(t->said[0], "user"))
                return answer(t, e);
        say(&talk, "there is no message to answer again\n");
        return TGC_OK;
}

static int c_save(Talk *t, const char *path, Err *e)
{
        Progress talk = progress_new(t->a);
        Err why;
        if (!*path) {
                say(&talk, "/save FILE\n");
                return TGC_OK;
        }
        char *text = cJSON_Print(t->said[0]);
        if (!text)
                return no_memory(e);
        if (file_write_atomic(path, text, strlen(text), &why))
                say_error(why.msg);
        else
                say(&talk, "%s: %d messages; tgc run and tgc chat read it with --messages\n", path,
                    cJSON_GetArraySize(t->said[0]));
        free(text);
        return TGC_OK;
}

static int c_exit(Talk *t, const char *text, Err *e)
{
        (void)text, (void)e;
        t->leave = true;
        return TGC_OK;
}

static int c_help(Talk *t, const char *text, Err *e);

static const struct {
        const char *name, *what;
        int (*run)(Talk *t, const char *text, Err *e);
} command[] = {
        { "/system", "TEXT   system message from now on; without TEXT none", c_system },
        { "/reset", "         begin anew, with the system message", c_reset },
        { "/regen", "         answer the last message again", c_regen },
        { "/undo", "          take the last message and its answer back", c_undo },
        { "/save", "FILE      write the messages as JSON", c_save },
        { "/help", "          this", c_help },
        { "/exit", "          leave; so does Ctrl-D", c_exit },
        { "/quit", NULL, c_exit },
};
enum { N_COMMANDS_HERE = sizeof command / sizeof *command };

static int c_help(Talk *t, const char *text, Err *e)
{
        Progress talk = progress_new(t->a);
        (void)text, (void)e;
        for (int i = 0; i < N_COMMANDS_HERE; i++)
                if (command[i].what)
                        say(&talk, "%s %s\n", command[i].name, command[i].what);
        say(&talk,
            "\"\"\" begins and ends a message of several lines; a \\ at a line's end goes on, "
            "too.\n"
            "Ctrl-C stops an answer.\n");
        return TGC_OK;
}

static int obey(Talk *t, char *line, Err *e)
{
        Progress talk = progress_new(t->a);
        size_t n = strcspn(line, " \n");
        for (int i = 0; i < N_COMMANDS_HERE; i++)
                if (strlen(command[i].name) == n && !memcmp(command[i].name, line, n))
                        return command[i].run(t, line + n + strspn(line + n, " \n"), e);
        say(&talk,
            "%.*s is no command; /help lists them, and a blank in front sends it as a message\n",
            (int)(n < 40 ? n : 40), line);
        return TGC_OK;
}

/* ---- the session ---- */

static int read_messages(Talk *t, Err *e)
{
        char *text;
        size_t n;
        cJSON *o;
        int code = messages_read(t->a, &text, &n, e);
        if (code)
                return code;
        code = json_parse(&o, text, n, opt_str(t->a, O_MESSAGES), e);
        free(text);
        if (code)
                return code;
        cJSON *list = cJSON_IsArray(o) ? o : cJSON_GetObjectItemCaseSensitive(o, "messages");
        if (cJSON_IsObject(o) && cJSON_GetArraySize(o) > 1)
                code = err_set(
                        e, TGC_USAGE,
                        "chat: %s has more than messages (tools ...), which a conversation in a "
                        "terminal cannot use; tgc run --messages answers it",
                        opt_str(t->a, O_MESSAGES));
        for (int i = 0; i < t->n_models && !code; i++)
                if (!(t->said[i] = cJSON_Duplicate(list, true)))
                        code = no_memory(e);
        cJSON_Delete(o);
        return code;
}

static int begin(Talk *t, Err *e)
{
        const OptionValue *first = &t->a->v[O_PROMPT];
        int code = opt_str(t->a, O_MESSAGES) ? read_messages(t, e) : TGC_OK;
        for (int i = 0; i < t->n_models && !code; i++) {
                if (!t->said[i] && !(t->said[i] = cJSON_CreateArray()))
                        code = no_memory(e);
                if (!code && opt_str(t->a, O_SYSTEM) && !opt_str(t->a, O_MESSAGES))
                        code = set_system(t->said[i], opt_str(t->a, O_SYSTEM), e);
        }
        if (!code && last_is(t->said[0], "user"))
                code = answer(t, e);
        for (int i = 0; i < first->n && !code; i++) {
                if (t->lines.tty)
                        print("> %s\n", first->list[i]);
                code = ask(t, first->list[i], e);
        }
        return code;
}

static int converse(Talk *t, Err *e)
{
        Progress talk = progress_new(t->a);
        int code = begin(t, e);
        if (t->lines.tty && !code)
                say(&talk, "/help lists commands, Ctrl-C stops an answer, Ctrl-D leaves\n");
        while (!code && !t->leave) {
                char *line = lines_read(&t->lines, "> ");
                if (!line)
                        break;
                if (*line == '/' && line[1] >= 'a' && line[1] <= 'z')
                        code = obey(t, line, e);
                else if (line[strspn(line, " \t\n")])
                        code = ask(t, line + (*line == ' ' && line[1] == '/'), e);
                free(line);
        }
        for (int i = 0; i < t->n_models && !code; i++) {
                const ChatModel *m = &t->model[i];
                if (m->all_said)
                        say(&talk,
                            "%s%s: %s, %d tokens read at %.1f tok/s, %d said at %.1f tok/s\n",
                            i || !t->lines.tty ? "" : "\n", m->name, dev_name(session_device(m->s)),
                            m->all_prompt,
                            m->all_prompt_s > 0 ? m->all_prompt / m->all_prompt_s : 0., m->all_said,
                            m->all_answer_s > 0 ? m->all_said / m->all_answer_s : 0.);
        }
        return code;
}

int cmd_chat(const Args *a, Err *e)
{
        static Talk t;
        struct timespec now;
        int code = TGC_OK;
        clock_gettime(CLOCK_REALTIME, &now);
        uint64_t seed = a->v[O_SEED].i >= 0
                                ? (uint64_t)a->v[O_SEED].i
                                : ((uint64_t)now.tv_sec * 1000003u ^ (uint64_t)now.tv_nsec) &
                                          0x1fffffffffffffu;
        t = (Talk) { .a = a };
        for (int i = 0; i < a->n_pos && !code; i++) {
                t.n_models = i + 1;
                code = chat_model_open(&t.model[i], a, i, seed, e);
        }
        if (!code)
                code = log_open(&t, e);
        if (!code) {
                lines_open(&t.lines);
                code = converse(&t, e);
                lines_close(&t.lines);
        }
        if (t.log && fclose(t.log) && !code)
                code = err_set(e, TGC_IO, "--log %s: %s", opt_str(a, O_CHAT_LOG), strerror(errno));
        for (int i = 0; i < t.n_models; i++) {
                cJSON_Delete(t.said[i]);
                chat_model_close(&t.model[i]);
        }
        return code;
}
