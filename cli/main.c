/* main.c: the program tgc; all of it is tgc_main (tgc.c), which tests call, too. */
#include "cli.h"

int main(int argc, char **argv) { return tgc_main(argc, argv); }
