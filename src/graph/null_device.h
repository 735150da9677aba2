/* null_device.h - a device of addresses: programs are compiled for it and nothing is computed, no memory is used.
 */
#ifndef BY_GRAPH_NULL_DEVICE_H
#define BY_GRAPH_NULL_DEVICE_H

#include "graph/graph.h"

extern const gr_backend gr_null_backend;

#endif
