/* null_device.h - a device for planning: programs can be compiled for it, but it computes nothing and uses no
 * memory. */
#ifndef BY_GRAPH_NULL_DEVICE_H
#define BY_GRAPH_NULL_DEVICE_H

#include "graph/graph.h"

extern const gr_backend gr_null_backend;

#endif
