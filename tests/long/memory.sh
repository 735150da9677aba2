#!/bin/sh
# A thousand random allocation failures in generate and a thousand in train, half of them for good.
BANYAN_FAILURES=500 exec sh "$(dirname "$0")/../scripts/memory.sh"
