/* What this binary was built with, for `rolltop --version --verbose` and bug reports. */
#ifndef ROLLTOP_APP_BUILD_INFO_H
#define ROLLTOP_APP_BUILD_INFO_H

#include <stdio.h>

void build_info_print(FILE *out);

#endif
