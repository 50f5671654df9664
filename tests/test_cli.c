/* test_cli.c: the command line: parsing, help, exit codes, schedules, windows, streaming.
 * test_cli_run.c has whole runs. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include "cli_test.h"
#include "cli/data/windows.h"
#include "cli/train/state.h"
#include "runtime/tgc.h"
#include "plan_file.h"

/* ---- parsing ---- */

static Args args;
static Err err;

static int parse(CommandId cmd, const char *line)
{
        static char words[1024];
        char *argv[32];
        int argc = 0;
        snprintf(words, sizeof words, "%s", line);
        for (char *w = strtok(words, " "); w; w = strtok(NULL, " "))
                argv[argc++] = w;
        args_free(&args);
        err.msg[0] = 0;
        return args_parse(&args, cmd, argc, argv, &err);
}

TEST (option_forms) {
        static const char *const same[] = { "p -n 5",        "p -n5",         "p -n=5",
                                            "p --predict 5", "p --predict=5", "-n 5 p" };
        for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
                CHECK_MSG(!parse(CMD_RUN, same[i]), "%s: %s", same[i], err.msg);
                CHECK_MSG(opt_int(&args, O_PREDICT) == 5 && args.n_pos == 1, "%s", same[i]);
        }
        CHECK(!parse(CMD_RUN, "p -n -1") && opt_int(&args, O_PREDICT) == -1);
        CHECK(!parse(CMD_RUN, "p") && opt_int(&args, O_PREDICT) == 256 &&
              !opt_set(&args, O_PREDICT));
        CHECK(!parse(CMD_COMPILE, "m -O2 -D a=1 --define b=2 -Dc=3") && opt_int(&args, O_OPT) == 2);
        CHECK(args.v[O_DEFINE].n == 3 && !strcmp(args.v[O_DEFINE].list[2], "c=3"));
        CHECK(!parse(CMD_RUN, "-- -p") && args.n_pos == 1 && !strcmp(args.pos[0], "-p"));
}

TEST (option_spelling_and_flags) {
        CHECK(!parse(CMD_TRAIN, "m --batch-size 3") && opt_int(&args, O_BATCH) == 3);
        CHECK(!parse(CMD_TRAIN, "m --batch_size=3") && opt_int(&args, O_BATCH) == 3);
        CHECK(!parse(CMD_TRAIN, "m --max-iters 7") && opt_int(&args, O_MAX_ITERS) == 7);
        CHECK(!parse(CMD_TRAIN, "m") && opt_flag(&args, O_DECAY_LR));
        CHECK(!parse(CMD_TRAIN, "m --no-decay_lr") && !opt_flag(&args, O_DECAY_LR) &&
              opt_set(&args, O_DECAY_LR));
        CHECK(!parse(CMD_TRAIN, "m --decay_lr=False") && !opt_flag(&args, O_DECAY_LR));
        CHECK(parse(CMD_TRAIN, "m --decay_lr=maybe") == TGC_USAGE);
        CHECK(!parse(CMD_TRAIN, "m --learning_rate 1e-3") && opt_num(&args, O_LR) == 1e-3);
}

TEST (option_mistakes) {
        static const struct {
                CommandId cmd;
                const char *line, *says;
        } bad[] = {
                { CMD_RUN, "p --tmep 1", "did you mean --temp?" },
                { CMD_RUN, "p --max_iters 1", "but of `tgc train`" },
                { CMD_RUN, "p --zzzzzzzz", "`tgc help run`" },
                { CMD_RUN, "p --temp 101", "101 is outside 0 to 100" },
                { CMD_RUN, "p --top-p -0.1", "outside 0 to 1" },
                { CMD_RUN, "p -n 5x", "'5x' is not a whole number" },
                { CMD_RUN, "p -n 99999999999999999999", "is outside -1 to 16777216" },
                { CMD_RUN, "p -s 9007199254740993", "is outside -1 to 9007199254740992" },
                { CMD_RUN, "p --temp nan", "is not a number" },
                { CMD_RUN, "p -n", "needs a value" },
                { CMD_RUN, "p --device gpu", "not one of auto|cpu|cuda|emulate" },
                { CMD_RUN, "", "PLAN is missing" },
                { CMD_RUN, "p q", "one argument too many" },
                { CMD_RUN, "p --no-temp", "unknown option" },
                { CMD_EVAL, "p --data=", "the name is empty" },
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                CHECK_MSG(parse(bad[i].cmd, bad[i].line) == TGC_USAGE, "%s was taken", bad[i].line);
                CHECK_MSG(strstr(err.msg, bad[i].says), "%s: no '%s' in: %s", bad[i].line,
                          bad[i].says, err.msg);
        }
}

/* A table that contradicts itself would show here. */
TEST (option_table) {
        for (int o = 0; o < N_OPTIONS; o++) {
                const OptionInfo *x = &option_info[o];
                CHECK_MSG((x->kind == OPT_FLAG) == !x->meta,
                          "--%s: a value needs a name, a flag has none", x->name);
                CHECK_MSG(x->commands, "--%s belongs nowhere", x->name);
                for (int k = 0; k < o; k++) {
                        const OptionInfo *y = &option_info[k];
                        if (x->commands & y->commands) {
                                CHECK_MSG(strcmp(x->name, y->name), "--%s stands twice", x->name);
                                CHECK_MSG(!x->letter || x->letter != y->letter, "-%c stands twice",
                                          x->letter);
                        }
                }
        }
        for (int c = 0; c < N_COMMANDS; c++) {
                const char *pos[] = { "", "a" };
                CHECK_MSG(!parse((CommandId)c, pos[command_info[c].min_args]),
                          "%s: a default is refused: %s", command_info[c].name, err.msg);
        }
}

TEST (edit_distances) {
        CHECK(edit_distance("temp", "temp") == 0 && edit_distance("temp", "tmep") == 1 &&
              edit_distance("", "abc") == 3);
        CHECK(edit_distance("kitten", "sitting") == 3);
        char big[200];
        memset(big, 'x', sizeof big - 1);
        big[sizeof big - 1] = 0;
        CHECK(edit_distance(big, "x") == 63);
}

/* ---- help ---- */

/* Compared whole; TGC_BLESS=1 writes the expected text. */
static void golden(const char *line, const char *name)
{
        static char want[1 << 16];
        char path[128];
        CHECK_MSG(tgc(line) == 0, "tgc %s: %d", line, r.code);
        snprintf(path, sizeof path, "tests/cli/%s", name);
        if (getenv("TGC_BLESS"))
                write_file(path, r.out);
        child_read(path, want, sizeof want);
        CHECK_MSG(!strcmp(want, r.out), "tgc %s differs from %s:\n%s", line, path, r.out);
}

TEST (help_golden) {
        golden("help", "help.txt");
        golden("tokenize --help", "help_tokenize.txt");
}

TEST (help_everywhere) {
        for (int c = 0; c < N_COMMANDS; c++) {
                char line[64];
                snprintf(line, sizeof line, "%s --help", command_info[c].name);
                CHECK_MSG(tgc(line) == 0 && strstr(r.out, command_info[c].brief), "%s: %d", line,
                          r.code);
        }
        CHECK(tgc("") == TGC_USAGE);
        CHECK(tgc("help lua") == 0 && strstr(r.out, "b.self_attention(x, o)") &&
              strstr(r.out, "    rope(x (B,T,H,D), freq"));
        CHECK(tgc("help models") == 0 && strstr(r.out, "\ngpt_neox ") &&
              strstr(r.out, "n_layer=12"));
        CHECK(tgc("help models llama --markdown") == 0 &&
              strstr(r.out, "\n| `-D window=0` | length of the attention window in tokens; "
                            "0: no window |\n"));
        EXPECT("help models lama", TGC_USAGE, "no model 'lama' comes with tgc");
        EXPECT("help lua more", TGC_USAGE, "'more' is one argument too many");
        EXPECT("help run more", TGC_USAGE, "'more' is one argument too many");
        CHECK(tgc("--version") == 0 && !strncmp(r.out, "tgc ", 4));
}

/* tgc 0.1.0 (commit 8346fc5b1e, gcc 12.2.0) */
TEST (version_names_commit_and_compiler) {
        char commit[80], compiler[80], want[200];
        CHECK(tgc("version") == 0);
        CHECK_MSG(sscanf(r.out, "tgc " TGC_VERSION " (commit %79[0-9a-z-], %79[a-z0-9. ])", commit,
                         compiler) == 2,
                  "%s", r.out);
        CHECK_MSG(strlen(commit) >= 7 &&
                          (!strncmp(compiler, "gcc ", 4) || !strncmp(compiler, "clang ", 6)),
                  "%s", r.out);
        CHECK(tgc("version --json") == 0);
        snprintf(want, sizeof want, "\"commit\": \"%s\", \"compiler\": \"%s\"}", commit, compiler);
        CHECK_MSG(strstr(r.out, want), "%s", r.out);
}

static bool takes(int cmd, const char *typed)
{
        for (int o = 0; o < N_OPTIONS; o++)
                if ((option_info[o].commands >> cmd & 1) &&
                    (typed[1] == '-' ? !strcmp(typed + 2, option_info[o].name)
                                     : !typed[2] && option_info[o].letter == typed[1]))
                        return true;
        return false;
}

/* What llama.cpp's users type is answered, and hides no option of tgc's own. */
TEST (habits_of_others_get_a_hint) {
        for (int i = 0; i < N_HABITS; i++)
                for (int c = 0; c < N_COMMANDS; c++) {
                        char line[200];
                        const char *s = habit_info[i].typed;
                        if (!(habit_info[i].commands >> c & 1))
                                continue;
                        CHECK_MSG(!takes(c, s), "%s is an option of %s", s, command_info[c].name);
                        snprintf(line, sizeof line, "%s x %s 4", command_info[c].name, s);
                        EXPECT(line, TGC_USAGE, habit_info[i].what);
                        CHECK_MSG(strstr(r.err, s), "%s is not named: %s", s, r.err);
                }
        EXPECT("run x -ngl=99", TGC_USAGE, "--device cuda");
        EXPECT("run x -cnvx", TGC_USAGE, "--ctx-size");
        EXPECT("generate x", TGC_USAGE, "there is no command 'generate': it is tgc run MODEL");
        EXPECT("serve", TGC_USAGE, "there is no server");
        EXPECT("tests/data/gguf/kinds.gguf", TGC_USAGE,
               "is a file, and a command comes first: tgc run tests/data/gguf/kinds.gguf -p TEXT");
        EXPECT("no_such_file.gguf", TGC_USAGE, "unknown command 'no_such_file.gguf'");
}

TEST (tokenize_takes_texts) {
        EXPECT("tokenize tests/data/gguf/minilm.gguf -p a~happy~dog -p fox", 0, "");
        CHECK_MSG(!strcmp(r.out, "2 5 9 7\n2 8\n"), "%s", r.out);
        EXPECT("tokenize tests/data/gguf/minilm.gguf --ids -p 5,9,7 -p 8", 0, "");
        CHECK_MSG(!strcmp(r.out, "a happy dog\nfox\n"), "%s", r.out);
        EXPECT("tokenize tests/data/gguf/minilm.gguf --ids -p x", 3, "--prompt:1:1: 'x'");
}

/* What is typed in the first minutes, and what says how to go on. */
TEST (first_mistakes) {
        EXPECT("tokenize tests/data/gguf/llama31.gguf -p hello", TGC_BAD_FILE,
               "the file has no tokenizer");
        EXPECT("tokenize examples/shakespeare hello", TGC_USAGE, "a text is -p TEXT");
        EXPECT("run examples/shakespeare -p \xe6\x97\xa5", TGC_USAGE, "none of its characters");
        EXPECT("train tests/data/text/stories.txt", TGC_USAGE,
               "tgc train gpt --data tests/data/text/stories.txt");
        EXPECT("train gpt", TGC_USAGE, "--data FILE is missing: tgc train gpt --data FILE");
        EXPECT("run meta/llama -p hi", TGC_IO, "tgc downloads nothing");
        EXPECT("run https://some.where/gpt2 -p hi", TGC_IO, "tgc downloads nothing");
        EXPECT("run tests/none -p hi", TGC_IO, "no such file or folder\n");
        EXPECT("run none -p hi --weight-type keep", TGC_IO, "no model of that name comes with tgc");
        EXPECT("train gpt --data tests/data/text/stories.txt --out_dir Makefile", TGC_IO,
               "--out_dir Makefile: is a file, and a folder is needed");
        EXPECT("train tests/data/models/story --out_dir x --resume", TGC_USAGE,
               "--data is missing; `tgc train x --resume` goes on");
        EXPECT("compile tests/data/gguf/gpt2.gguf --tuned Makefile -o x", TGC_BAD_FILE,
               "Makefile:1: error: not a text of choices");
        CHECK_MSG(!strncmp(r.err, "Makefile:1:", 11), "%s", r.err);
        EXPECT("run tests/data/gguf -p hi", TGC_BAD_FILE, "tests/data/gguf/blocks.gguf");
}

TEST (man_page_and_completion) {
        CHECK(tgc("help --man") == 0 && !strncmp(r.out, ".TH TGC 1", 9));
        for (int o = 0; o < N_OPTIONS; o++) { /* every option is in both */
                char word[128] = "\\-\\-", *to = word + 4;
                for (const char *s = option_info[o].name; *s; s++) {
                        if (*s == '-')
                                *to++ = '\\';
                        *to++ = *s;
                }
                CHECK_MSG(strstr(r.out, word), "the man page lacks --%s", option_info[o].name);
        }
        static const char *const shell[] = { "bash", "zsh", "fish" };
        for (int i = 0; i < 3; i++) {
                char line[1200];
                snprintf(line, sizeof line, "help --completion %s", shell[i]);
                CHECK(tgc(line) == 0);
                for (int o = 0; o < N_OPTIONS; o++)
                        CHECK_MSG(strstr(r.out, option_info[o].name), "completion of %s lacks --%s",
                                  shell[i], option_info[o].name);
                for (int c = 0; c < N_COMMANDS; c++)
                        CHECK_MSG(strstr(r.out, command_info[c].name), "completion of %s lacks %s",
                                  shell[i], command_info[c].name);
                snprintf(line, sizeof line, "! command -v %s >/dev/null 2>&1 || %s -n %s 2>&1",
                         shell[i], shell[i], scratch("out"));
                CHECK_MSG(system(line) == 0, "%s does not take its completion", shell[i]);
        }
        EXPECT("help --completion ksh", TGC_USAGE, "not one of bash|zsh|fish");
}

/* ---- exit codes that need no plan ---- */

TEST (exit_codes) {
        char line[1024];
        EXPECT("comple x", TGC_USAGE, "did you mean compile?");
        EXPECT("qwertz", TGC_USAGE, "`tgc help` lists");
        EXPECT("run no/such.plan -p x", TGC_IO, "no/such.plan: no such file");
        EXPECT("compile no/such.lua -o x.plan", TGC_IO, "no such file");
        EXPECT("train gpt", TGC_USAGE, "--data FILE");
        EXPECT("train gpt --data no/such.txt", TGC_IO, "no/such.txt");
        EXPECT("dump gpt", TGC_USAGE, "--graph");
        EXPECT("dump gpt --ir --json", TGC_USAGE, "--json has no effect: it goes with --graph");
        EXPECT("compile gpt --target tpu -o x.plan", TGC_USAGE, "'tpu' is not one of");
        EXPECT("compile gpt", TGC_USAGE, "-o PLAN");
        EXPECT("bench gpt --train --decode", TGC_USAGE, "cannot be combined");
        EXPECT("tokenize no/such", TGC_IO, "no/such");

        write_file(scratch("model.gguf"), "GGUF");
        snprintf(line, sizeof line, "run %s -p x", scratch("model.gguf"));
        EXPECT(line, TGC_BAD_FILE, "model.gguf: the version: the file ends there");
        write_file(scratch("broken.plan"), "tgcplan\n");
        snprintf(line, sizeof line, "info %s", scratch("broken.plan"));
        EXPECT(line, TGC_BAD_FILE, "broken.plan");
        write_file(scratch("a.txt"), "x");
        snprintf(line, sizeof line, "info %s", scratch("a.txt"));
        EXPECT(line, TGC_BAD_FILE, "neither a plan nor");
        write_file(scratch("bad.lua"), "return {\n  graph = function(p) return x +\n}\n");
        snprintf(line, sizeof line, "compile %s -o %s", scratch("bad.lua"), scratch("x.plan"));
        EXPECT(line, TGC_BAD_FILE, "bad.lua:3:");
        CHECK(!file_exists(scratch("x.plan")));
        snprintf(line, sizeof line, "info %s", dir);
        EXPECT(line, TGC_BAD_FILE, "neither config.json nor model.plan");
        mkdir(scratch("m"), 0777);
        write_file(scratch("m/config.json"), "{\"model_type\": \"no_such_family\"}");
        snprintf(line, sizeof line, "info %s", scratch("m"));
        EXPECT(line, TGC_BAD_FILE, "no_such_family");
        snprintf(line, sizeof line, "info %s", scratch("m/config.json"));
        EXPECT(line, TGC_USAGE, "give the folder it lies in");
}

TEST (tokenizer_train) {
        char line[2048], path[512], text[512];

        snprintf(text, sizeof text, "%s", scratch("text"));
        snprintf(path, sizeof path, "%s", scratch("learned.json"));
        snprintf(line, sizeof line,
                 "tokenizer train tests/data/text/stories.txt --vocab-size 300 --special <|end|> "
                 "--special <|x|> -o %s --json",
                 path);
        CHECK_MSG(tgc(line) == 0, "%s", r.err);
        CHECK(strstr(r.out, "\"vocab_size\":\t300") && strstr(r.out, "\"merges\":\t42") &&
              strstr(r.out, "\"text_bytes\":\t98380"));
        write_file(text, "<|x|>!");
        input = text;
        snprintf(line, sizeof line, "tokenize %s", path);
        CHECK(tgc(line) == 0 && !strcmp(r.out, "1 2\n"));
        write_file(text, "ab");
        snprintf(line, sizeof line, "tokenizer train - --vocab-size 1000 -o %s", scratch(""));
        CHECK_MSG(tgc(line) == 0 && strstr(r.err, "tokenizer.json: 257 tokens, 1 merges") &&
                          strstr(r.err, " s\n") &&
                          strstr(r.err, "1000 tokens were asked for, but") &&
                          r.err[strlen(r.err) - 1] == '\n',
                  "%s", r.err);
        input = "/dev/null";
        EXPECT("tokenizer train a.txt", TGC_USAGE, "-o tokenizer.json is missing");
        EXPECT("tokenizer train -o x", TGC_USAGE, "TEXT is missing");
        EXPECT("tokenizer learn a.txt -o x", TGC_USAGE, "'learn' is not known");
        EXPECT("tokenizer train no/such -o x", TGC_IO, "no/such");
        EXPECT("tokenizer train a --vocab-size 255 -o x", TGC_USAGE, "--vocab-size");
        EXPECT("tokenizer train a --vocab-size 256 --special <s> -o x", TGC_USAGE,
               "257 to 4194304 are possible");
        EXPECT("tokenizer train a --special a -o x", TGC_USAGE, "'a' is the name of a byte");
        snprintf(line, sizeof line, "tokenizer train %s -o %s", path, path);
        EXPECT(line, TGC_USAGE, "is the file that tokenizer reads");
}

/* An output must not take the place of what is read, under whatever name. */
TEST (outputs_that_are_inputs) {
        static const struct {
                const char *line, *says;
        } bad[] = {
                { "compile @/in.lua -o @/in.lua",
                  "--output @/in.lua is the file that compile reads" },
                { "compile @/in.lua -o @/link", "--output @/link is the file that compile reads" },
                { "tune @/in.lua -o @/in.lua", "is the file that tune reads" },
                { "compile gpt --weights @/in.txt -o @/in.txt", "the file that --weights reads" },
                { "compile gpt --tokenizer char:@/in.txt -o @/in.txt",
                  "the file that --tokenizer reads" },
                { "eval gpt --ids @/in.txt --logits @/in.txt",
                  "--logits @/in.txt is the file that --ids reads" },
                { "eval @/in.plan --ids @/in.txt --logits @/in.plan",
                  "--logits @/in.plan is the file that eval reads" },
                { "train gpt --data @/in.txt --log_csv @/in.txt",
                  "--log_csv @/in.txt is the file that --data reads" },
                { "train gpt --data @/in.txt --grads_out @/in.txt",
                  "is the file that --data reads" },
        };
        char line[2048], says[1024], text[64];
        write_file(scratch("in.lua"), "as it was");
        write_file(scratch("in.txt"), "as it was");
        write_file(scratch("in.plan"), "tgcplan\n");
        CHECK(!link(scratch("in.lua"), scratch("link")));
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                in_dir(line, sizeof line, bad[i].line);
                in_dir(says, sizeof says, bad[i].says);
                EXPECT(line, TGC_USAGE, says);
        }
        child_read(scratch("in.lua"), text, sizeof text);
        CHECK(!strcmp(text, "as it was"));
        in_dir(line, sizeof line, "compile @/in.plan -o @/in.plan --target cpu");
        EXPECT(line, TGC_BAD_FILE, "in.plan"); /* it is read */
}

/* A folder that is not there is said before the work, by the name that was typed. */
TEST (folders_of_outputs) {
        static const struct {
                const char *line, *says;
        } bad[] = {
                { "compile gpt -o @/no/x.plan", "--output @/no/x.plan: there is no folder @/no" },
                { "compile gpt -o @/in.txt/x", "--output @/in.txt/x: @/in.txt is a file" },
                { "tune gpt -o @/no/x.plan", "there is no folder @/no" },
                { "dump gpt --html @/no/x.html", "--html @/no/x.html: there is no folder @/no" },
                { "export gpt --gguf @/no/x.gguf", "--gguf @/no/x.gguf: there is no folder @/no" },
                { "quantize gpt --type q8_0 -o @/no/x.gguf", "there is no folder @/no" },
                { "imatrix gpt --data @/in.txt -o @/no/x.gguf", "there is no folder @/no" },
                { "tokenizer train @/in.txt -o @/no/x.json", "there is no folder @/no" },
                { "eval gpt --data @/in.txt --logits @/no/x.npy", "there is no folder @/no" },
                { "eval gpt --data @/in.txt --save-base @/no/x.npy", "there is no folder @/no" },
                { "train gpt --data @/in.txt --log_csv @/no/x.csv --out_dir @/out",
                  "--log_csv @/no/x.csv: there is no folder @/no" },
                { "train gpt --data @/in.txt --grads_out @/no/x", "there is no folder @/no" },
                { "train gpt --data @/in.txt --summary_csv @/no/x", "there is no folder @/no" },
                { "chat gpt --log @/no/x.md", "--log @/no/x.md: there is no folder @/no" },
                { "plot @/in.txt -o @/no/x.svg", "there is no folder @/no" },
        };
        char line[2048], says[1024];
        write_file(scratch("in.txt"), "as it was");
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                in_dir(line, sizeof line, bad[i].line);
                in_dir(says, sizeof says, bad[i].says);
                EXPECT(line, TGC_IO, says);
                CHECK_MSG(!strstr(r.err, ".tgc-"), "%s", r.err);
        }
        /* what a run makes itself is no such folder */
        in_dir(line, sizeof line,
               "train gpt --data @/in.txt --out_dir @/own --log_csv @/own/log.csv");
        EXPECT(line, TGC_BAD_FILE, "a window of");
}

TEST (doctor_looks_at_the_cache) {
        static const struct {
                const char *folder, *says;
        } bad[] = {
                { "@/in.txt", "in.txt cannot be written: Not a directory" },
                { "@/in.txt/deeper", "deeper cannot be written: Not a directory" },
                { "/proc/tgc", "/proc/tgc cannot be written" },
        };
        char *old = getenv("TGC_CACHE_DIR") ? strdup(getenv("TGC_CACHE_DIR")) : NULL, folder[600];
        write_file(scratch("in.txt"), "x");
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                in_dir(folder, sizeof folder, bad[i].folder);
                setenv("TGC_CACHE_DIR", folder, 1);
                tgc("doctor");
                CHECK_MSG(strstr(r.out, "cache         missing") && strstr(r.out, bad[i].says),
                          "%s: %s", folder, r.out);
                CHECK(strstr(r.out, "set TGC_CACHE_DIR to a folder that can be written"));
        }
        setenv("TGC_CACHE_DIR", scratch("new/cache"), 1);
        tgc("doctor");
        CHECK_MSG(strstr(r.out, "cache         ok"), "%s", r.out);
        old ? setenv("TGC_CACHE_DIR", old, 1) : unsetenv("TGC_CACHE_DIR");
        free(old);
}

TEST (full_disk) {
        if (access("/dev/full", W_OK))
                SKIP("no /dev/full");
        pid_t pid = fork();
        if (!pid) {
                char *argv[] = { "tgc", "help" };
                redirect("/dev/full", 1, O_WRONLY);
                redirect("/dev/null", 2, O_WRONLY);
                _exit(tgc_main(2, argv));
        }
        CHECK(finish(pid) == TGC_IO);
}

/* ---- pieces ---- */

TEST (utf8_stream) {
        /* a e-acute euro grin z */
        static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";
        char out[32];
        size_t n = sizeof text - 1, held, at = 0;
        for (size_t step = 1; step <= n; step++) {
                char hold[32];
                held = at = 0;
                for (size_t i = 0; i < n; i += step) {
                        size_t k = n - i < step ? n - i : step, ready;
                        memcpy(hold + held, text + i, k);
                        held += k;
                        ready = utf8_ready(hold, held);
                        memcpy(out + at, hold, ready);
                        at += ready;
                        CHECK_MSG(ready < 2 || utf8_ready(out, at) == at,
                                  "a broken sequence was let through");
                        memmove(hold, hold + ready, held -= ready);
                        CHECK_MSG(held < 4, "%zu bytes held back", held);
                }
                CHECK_MSG(at == n && !memcmp(out, text, n), "pieces of %zu: %zu bytes of %zu", step,
                          at, n);
        }
        CHECK(utf8_ready("\xff", 1) == 1 && utf8_ready("\x80\x80", 2) == 2 &&
              utf8_ready("", 0) == 0);
        CHECK(utf8_ready("\xc0", 1) == 1); /* begins nothing */
}

/* The path of torch.amp.GradScaler, as exponents of two: tests/e2e/train/loss_scale.py wrote it. */
TEST (the_loss_scale_is_gradscalers) {
        static const int want[200] = {
                16, 16, 16, 16, 16, 16, 17, 17, 17, 16, 16, 16, 16, 15, 15, 15, 15, 15, 14, 14,
                14, 14, 14, 14, 13, 13, 13, 13, 13, 13, 13, 14, 14, 14, 14, 14, 14, 14, 13, 13,
                13, 13, 12, 12, 12, 12, 11, 11, 11, 11, 11, 11, 11, 12, 12, 12, 11, 11, 11, 11,
                11, 11, 11, 12, 12, 12, 12, 12, 12, 12, 13, 13, 13, 13, 13, 13, 13, 14, 14, 14,
                14, 14, 14, 14, 15, 15, 15, 15, 15, 15, 15, 16, 16, 16, 16, 16, 16, 15, 15, 15,
                14, 13, 13, 13, 13, 13, 13, 13, 14, 14, 14, 14, 14, 14, 14, 15, 15, 15, 15, 14,
                14, 14, 14, 14, 14, 13, 13, 13, 13, 13, 13, 13, 14, 14, 14, 14, 14, 14, 14, 15,
                15, 15, 15, 15, 15, 15, 14, 14, 14, 14, 14, 14, 13, 13, 13, 13, 13, 13, 13, 14,
                14, 14, 14, 14, 14, 14, 15, 15, 15, 15, 15, 14, 14, 14, 14, 14, 14, 14, 15, 15,
                15, 15, 15, 15, 15, 16, 16, 16, 16, 16, 16, 16, 17, 17, 17, 17, 17, 16, 16, 16
        };
        LossScale s = { .scale = LOSS_SCALE_FIRST };
        uint32_t x = 1;
        int bad = 0;
        for (int i = 0; i < 200; i++) {
                x = (1103515245u * x + 12345u) & 0x7fffffff;
                const bool is_bad = (x >> 16) % 9 == 0;
                loss_scale_step(&s, is_bad, 7);
                bad += is_bad;
                CHECK_MSG(s.scale == ldexp(1, want[i]), "step %d: %g", i, s.scale);
        }
        CHECK(s.skipped == bad && bad > 15);
        s = (LossScale) { .scale = 8 }; /* fixed */
        loss_scale_step(&s, true, 0);
        CHECK(s.scale == 8 && s.skipped == 1);
}

TEST (learning_rate) {
        Schedule s = {
                .lr = 1e-3, .min_lr = 1e-4, .warmup = 5, .decay_steps = 105, .decay = false
        };
        CHECK(fabs(schedule_lr(&s, 0) - 2e-4) < 1e-18 && fabs(schedule_lr(&s, 4) - 1e-3) < 1e-18);
        CHECK(schedule_lr(&s, 5) == 1e-3 && schedule_lr(&s, 1000000) == 1e-3);
        s.decay = true;
        CHECK(schedule_lr(&s, 5) == 1e-3);
        CHECK(fabs(schedule_lr(&s, 55) - 5.5e-4) < 1e-15); /* half way */
        CHECK(schedule_lr(&s, 105) == 1e-4 && schedule_lr(&s, 9999) == 1e-4);
        for (int i = 6; i < 110; i++)
                CHECK(schedule_lr(&s, i) <= schedule_lr(&s, i - 1));
        s.warmup = 0;
        CHECK(schedule_lr(&s, 0) == 1e-3);
        s.warmup = 200; /* longer than the decay */
        CHECK(schedule_lr(&s, 200) == 1e-4);
        s = (Schedule) { .lr = 1e-3,
                         .min_lr = 1e-4,
                         .warmup = 5,
                         .decay_steps = 105,
                         .cooldown = 20,
                         .decay = true,
                         .kind = SCHEDULE_LINEAR };
        CHECK(fabs(schedule_lr(&s, 55) - 5.5e-4) < 1e-15 &&
              fabs(schedule_lr(&s, 30) - 7.75e-4) < 1e-15);
        s.kind = SCHEDULE_WSD;
        CHECK(schedule_lr(&s, 5) == 1e-3 && schedule_lr(&s, 85) == 1e-3);
        CHECK(fabs(schedule_lr(&s, 95) - 5.5e-4) < 1e-15 && schedule_lr(&s, 105) == 1e-4);
        s.cooldown = 1000; /* all of it */
        CHECK(fabs(schedule_lr(&s, 55) - 5.5e-4) < 1e-15);
        s.kind = SCHEDULE_CONSTANT;
        CHECK(schedule_lr(&s, 5) == 1e-3 && schedule_lr(&s, 1000) == 1e-3);
}

TEST (window_sampling) {
        enum { N = 1000, T = 7, B = 5 };
        int ids[N], x[B * T], y[B * T], x2[B * T], y2[B * T], seen[N] = { 0 }, different = 0;
        for (int i = 0; i < N; i++)
                ids[i] = i;
        TokenPart part = { .data = ids, .width = 4, .n = N };
        Source text = { .tokens = { &part, 1, N } };
        View view = { .source = &text, .begin = 100, .end = 200 };
        Windows w = { .view = &view, .n = 1, .T = T, .seed = 42, .separator = -1 };
        for (int step = 0; step < 400; step++) {
                windows_fill(&w, step, step % 3, 3, B, x, y, NULL);
                windows_fill(&w, step, step % 3, 3, B, x2, y2, NULL);
                CHECK(!memcmp(x, x2, sizeof x) && !memcmp(y, y2, sizeof y));
                for (int i = 0; i < B * T; i++)
                        CHECK_MSG(x[i] >= 100 && y[i] < 200 && y[i] == x[i] + 1, "%d then %d", x[i],
                                  y[i]);
                for (int b = 0; b < B; b++)
                        seen[x[b * T]]++;
        }
        for (int i = 100; i <= 200 - T - 1; i++)
                CHECK_MSG(seen[i], "no window of 2000 begins at %d", i);
        w.seed = 43;
        windows_fill(&w, 0, 0, 3, B, x, y, NULL);
        w.seed = 42;
        windows_fill(&w, 0, 0, 3, B, x2, y2, NULL);
        for (int i = 0; i < B; i++)
                different += x[i * T] != x2[i * T];
        CHECK(different > 0);
        const int64_t offset[] = { 0, 10, 20, 30, 40, 50, 60, 992 };
        view.begin = 0;
        view.end = N;
        w.offset = offset;
        windows_fill(&w, 1, 1, 2, 2, x, y, NULL);
        CHECK(x[0] == 60 && x[T] == 992 && y[2 * T - 1] == 999);
}

TEST (id_lists) {
        Err e;
        int *ids, n;
        CHECK(!ids_parse("[1, 2,\n33]", 10, 100, "t", &ids, &n, &e) && n == 3 && ids[2] == 33);
        free(ids);
        CHECK(ids_parse("1 100", 5, 100, "t", &ids, &n, &e) == TGC_BAD_FILE &&
              strstr(e.msg, "id 100 is outside"));
        CHECK(ids_parse("1 -2", 4, 100, "t", &ids, &n, &e) == TGC_BAD_FILE && strstr(e.msg, "-2"));
        CHECK(ids_parse("1 99999999999999999999", 22, 100, "t", &ids, &n, &e) == TGC_BAD_FILE);
        CHECK(ids_parse("1\n2 x", 5, 100, "t", &ids, &n, &e) == TGC_BAD_FILE);
        CHECK_MSG(strstr(e.msg, "t:2:3: 'x' is not allowed"), "%s", e.msg);
        CHECK(ids_parse(" ", 1, 100, "t", &ids, &n, &e) == TGC_BAD_FILE && strstr(e.msg, "no ids"));
}

TEST (zz_clean_up) {
        char line[300];
        snprintf(line, sizeof line, "rm -rf '%s'", dir);
        CHECK(!*dir || system(line) == 0);
        args_free(&args);
}

TEST_MAIN
