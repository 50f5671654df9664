/* main.c: the program tgc.  All work is in tgc_main (tgc.c), which tests also call. */
#include "cli.h"

int main(int argc, char **argv) { return tgc_main(argc, argv); }
