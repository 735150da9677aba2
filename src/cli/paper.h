/* paper.h - a device of addresses: programs are compiled for it and nothing is computed, no memory is used.
 */
#ifndef BY_CLI_PAPER_H
#define BY_CLI_PAPER_H

#include "graph/graph.h"

extern const by_backend cli_paper;

#endif
