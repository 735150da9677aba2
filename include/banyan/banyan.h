/* banyan.h - the whole public interface. */
#ifndef BANYAN_BANYAN_H
#define BANYAN_BANYAN_H

#include "banyan/base.h"
#include "banyan/embed.h"
#include "banyan/evaluate.h"
#include "banyan/examples.h"
#include "banyan/finetune.h"
#include "banyan/generate.h"
#include "banyan/graph.h"
#include "banyan/image.h"
#include "banyan/inspect.h"
#include "banyan/model.h"
#include "banyan/model_io.h"
#include "banyan/pass.h"
#include "banyan/predict.h"
#include "banyan/rewrite.h"
#include "banyan/score.h"
#include "banyan/reader.h"
#include "banyan/stream.h"
#include "banyan/tokenizer.h"
#include "banyan/train.h"
#include "banyan/train_tokenizer.h"
#include "banyan/verify.h"
#include "banyan/weights.h"

#endif
