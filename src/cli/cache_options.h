/* cache_options.h - the options of the continuous cache, for eval and generate. */
#ifndef BY_CLI_CACHE_OPTIONS_H
#define BY_CLI_CACHE_OPTIONS_H

#define CLI_CACHE_ROWS(struct, member)                                                               \
    {CLI_AT(struct, member.size),                                                                    \
     .name = "cache-size",                                                                           \
     CLI_RANGE(0, 1 << 24),                                                                          \
     .suffix = true,                                                                                 \
     .preset = "0",                                                                                  \
     .help = "capacity of the cache in hidden states; 0: no cache",                                  \
     .group = "Continuous cache (language models)"},                                                 \
        {CLI_AT(struct, member.theta), .name = "cache-theta", CLI_RANGE(0, 1e30), .preset = "0",     \
         .help = "theta: scale of the dot products of hidden states"},                               \
        {CLI_AT(struct, member.lambda), .name = "cache-lambda", CLI_RANGE(0, 0.9999), .preset = "0", \
         .help = "lambda: weight of the cache in the mixture"},                                      \
    {                                                                                                \
        CLI_AT(struct, member.per_document), .name = "cache-per-document",                           \
                                             .help = "clear the cache at each end-of-text token"     \
    }

#endif
