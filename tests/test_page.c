/* test_page.c: texts of strangers inside of a page: none of them ends the script that it stands
 * in. */
#include <math.h>
#include <string.h>
#include "cli/show/page.h"
#include "test.h"

static void is(const char *s, size_t n, const char *want)
{
        JsonOut j = { 0 };
        js_strn(&j, NULL, s, n);
        CHECK_MSG(!strcmp(j.s, want), "%s, not %s", j.s, want);
        js_free(&j);
}

TEST (markup_is_escaped) {
        is("</script><b>", 12, "\"\\u003c/script\\u003e\\u003cb\\u003e\"");
        is("a&b \"c\" \\", 9, "\"a\\u0026b \\u0022c\\u0022 \\u005c\"");
        is("<!--", 4, "\"\\u003c!--\"");
}

TEST (lines_and_control_characters) {
        is("a\nb\tc\r\x1b[31m\x7f", 12, "\"a\\nb\\tc\\u000d\\u001b[31m\\u007f\"");
        is("x\0y", 3, "\"x\\u0000y\"");
        is("\xe2\x80\xa8|\xe2\x80\xa9", 7, "\"\\u2028|\\u2029\"");
}

TEST (what_is_no_utf8_is_replaced) {
        is("\xc3\xa4 \xff \xc3", 6, "\"\xc3\xa4 \\ufffd \\ufffd\"");
        is("\xed\xa0\x80", 3, "\"\\ufffd\\ufffd\\ufffd\"");
        is("\xe2\x80", 2, "\"\\ufffd\\ufffd\"");
        is("\xf0\x9f\x98\x80", 4, "\"\xf0\x9f\x98\x80\"");
}

TEST (values_stand_in_their_brackets) {
        JsonOut j = { 0 };
        js_begin(&j, NULL, '{');
        js_num(&j, "a", 3);
        js_begin(&j, "b", '[');
        js_num(&j, NULL, 0.25);
        js_num(&j, NULL, NAN);
        js_end(&j, ']');
        js_str(&j, "c", "");
        js_end(&j, '}');
        CHECK_MSG(!strcmp(j.s, "{\"a\":3,\"b\":[0.25,null],\"c\":\"\"}\n"), "%s", j.s);
        js_free(&j);
}

TEST_MAIN
