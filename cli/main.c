#include "cli.h"

int main(int argc, char **argv) { return tgc_main(argc, argv); }
