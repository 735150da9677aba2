#!/bin/sh
# op_ids.sh - the op table is the whole truth about ops: nothing but the kernels asks which op a node has.
. "$(dirname "$0")/lib/common.sh"

own_folder
no_ids() {
    ! grep -rnE '([!=]= *|case +)(BY|GR)_OP_[A-Z]' "$BANYAN_SOURCE/src" --include='*.c' --include='*.h' \
        --include='*.cu' --include='*.cuh' | grep -v '/kernels/'
}
check "no file but the kernels compares op ids (give the row in ops.def a trait instead)" no_ids
