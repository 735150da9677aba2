/* text.c - a compiled graph as text: one line per node, or Graphviz. */
#include "graph/graph.h"

void by_string_free(char *s)
{
    base_free(s);
}

/* The mask and the pattern of an attention node. */
void gr_show_attention(const void *attr, base_buf *b)
{
    const by_attention_spec *a = &((const gr_attention_attr *)attr)->spec;
    static const char *const masks[] = {"", " causal", " prefix"};
    static const char *const kinds[] = {"", " window", " blocks", " strided", " fixed", " sinks", " memory"};
    const by_pattern *x = &a->pattern;
    base_buf_printf(b, "%s%s", masks[a->mask], kinds[x->kind]);
    if (x->kind == BY_PATTERN_BLOCKS || x->kind == BY_PATTERN_STRIDED || x->kind == BY_PATTERN_FIXED ||
        x->kind == BY_PATTERN_SINKS || x->kind == BY_PATTERN_MEMORY)
        base_buf_printf(b, " of %d", x->length);
    if (x->kind == BY_PATTERN_WINDOW || x->kind == BY_PATTERN_BLOCKS || x->kind == BY_PATTERN_SINKS)
        base_buf_printf(b, " -%d +%d", x->before, x->after);
    if (x->kind == BY_PATTERN_MEMORY)
        base_buf_printf(b, " -%d", x->before);
    if (x->kind == BY_PATTERN_FIXED)
        base_buf_printf(b, " to %d", x->after);
    if (x->part)
        base_buf_printf(b, " part %d", x->part);
}

static void put_lines(const by_graph *g, base_buf *b)
{
    char shape[96];
    for (int i = 0; i < g->n_nodes; i++) {
        const gr_node *n = g->nodes[i];
        base_buf_printf(b, "%4d %c %-18s %-36s", i, n->backward ? '<' : '>', gr_ops[n->op].name, n->scope);
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k])
                base_buf_printf(b, " %s", gr_shape_text(n->out[k], shape, sizeof shape));
        base_buf_puts(b, "  <-");
        for (int k = 0; k < n->n_in; k++) {
            const by_tensor *t = n->in[k];
            if (!t)
                continue;
            if (t->node)
                base_buf_printf(b, " #%d%s", t->node->index,
                                (const char *[]){"", "b", "c", "d", "e"}[t->index]);
            else
                base_buf_printf(b, " %s", gr_tensor_label(t));
        }
        if (gr_ops[n->op].show)
            gr_ops[n->op].show(n->attr, b);
        base_buf_puts(b, "\n");
    }
}

static void put_dot(const by_graph *g, base_buf *b)
{
    char shape[96];
    base_buf_puts(
        b, "digraph banyan {\n  rankdir=TB; node [shape=box, fontname=\"sans-serif\", fontsize=10];\n");
    for (int i = 0; i < g->n_leaves; i++)
        if (!g->leaves[i]->oldest)
            base_buf_printf(b, "  l%d [label=\"%s\\n%s\", style=filled, fillcolor=\"%s\"];\n", i,
                            gr_tensor_label(g->leaves[i]), gr_shape_text(g->leaves[i], shape, sizeof shape),
                            g->leaves[i]->place == GR_PLACE_PARAM ? "#dcecd9" : "#e6e6f5");
    for (int i = 0; i < g->n_nodes; i++) {
        const gr_node *n = g->nodes[i];
        base_buf_printf(b, "  n%d [label=\"%s%s\\n%s\"%s];\n", i, n->scope, gr_ops[n->op].name,
                        n->out[0] ? gr_shape_text(n->out[0], shape, sizeof shape) : "",
                        n->backward ? ", color=\"#b05030\"" : "");
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k] && n->in[k]->node)
                base_buf_printf(b, "  n%d -> n%d;\n", n->in[k]->node->index, i);
            for (int l = 0; n->in[k] && l < g->n_leaves; l++)
                if (g->leaves[l] == n->in[k] || g->leaves[l] == n->in[k]->oldest)
                    base_buf_printf(b, "  l%d -> n%d;\n", l, i);
        }
    }
    base_buf_puts(b, "}\n");
}

char *by_program_text(const by_program *p, bool dot)
{
    base_buf b = {0};
    if (!p) {
        base_fail_missing("program");
        return NULL;
    }
    if (dot)
        put_dot(p->graph, &b);
    else
        put_lines(p->graph, &b);
    if (b.failed) {
        base_buf_free(&b);
        base_fail(BY_ERR_MEMORY, "out of memory while printing a graph");
        return NULL;
    }
    if (!b.data)
        return base_strdup("");
    return b.data;
}
