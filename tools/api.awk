# api.awk - the public headers as one HTML page: awk -f tools/api.awk include/banyan/*.h > api.html
#
# The paragraphs of a header, which empty lines part, become text and code: comments that begin a line are text, all
# else is code as it stands. Every function needs a comment: before it in its paragraph, or in its own lines. Those
# without one are named on standard error, and the exit status is 1.
function escape(s) {
    gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); gsub(/>/, "\\&gt;", s)
    return s
}
function flush_code() {
    if (code != "")
        body = body "<pre>" code "</pre>\n"
    code = ""
}
function begin_header() {
    flush_code()
    name = FILENAME
    sub(/.*\//, "", name)
    index_text = index_text "<li><a href=\"#" name "\">" name "</a></li>\n"
    body = body "<h2 id=\"" name "\">banyan/" name "</h2>\n"
    covered = 0
}
# A comment that begins a line, from /* to */: a paragraph, or a heading where it is a rule (---- words ----).
function put_comment(text) {
    flush_code()
    sub(/^\/\* ?/, "", text)
    sub(/ ?\*\/.*$/, "", text)
    gsub(/\n \* ?/, "\n", text)
    if (text ~ /^-+ .* -+$/) {
        gsub(/^-+ | -+$/, "", text)
        body = body "<h3>" escape(text) "</h3>\n"
        return
    }
    if (text ~ /^[a-z_]+\.h - /)
        sub(/^[a-z_]+\.h - /, "", text)
    body = body (text ~ /\n  / ? "<p class=\"lines\">" : "<p>") escape(text) "</p>\n"
    covered = 1
}
function put_function(text,    call, shown) {
    call = text
    sub(/\(.*/, "", call)
    sub(/.*[ *\n]/, "", call)
    functions++
    if (!covered && text !~ /\/\*/) {
        print FILENAME ": " call " has no comment" > "/dev/stderr"
        bad++
    }
    shown = escape(text)
    sub(/^BY_API +/, "", shown)
    sub(call "\\(", "<b id=\"" call "\">" call "</b>(", shown)
    code = code shown "\n"
    calls[functions] = call
}
FNR == 1 { begin_header() }
/^#(ifndef|define BANYAN_|endif|include|ifdef|if|else)/ || /^extern "C"/ { next }
/^}$/ && !inside { next } # of extern "C"
/^$/ { flush_code(); covered = 0; next }
/^\/\*/ {
    text = $0
    while (text !~ /\*\//) {
        if ((getline line) <= 0)
            break
        text = text "\n" line
    }
    put_comment(text)
    next
}
/^BY_API/ {
    text = $0
    while (text !~ /;/ && (getline line) > 0)
        text = text "\n" line
    while (text ~ /\/\*/ && text !~ /\*\// && (getline line) > 0)
        text = text "\n" line
    put_function(text)
    next
}
{
    inside = /[{]$/ ? 1 : /^}/ ? 0 : inside
    code = code escape($0) "\n"
}
END {
    flush_code()
    print "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Banyan: the C interface</title>\n<style>"
    print "body { font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }"
    print "pre { background: #f4f6f9; padding: .6em .8em; overflow-x: auto; font-size: 14px; line-height: 1.4 }"
    print ".lines { white-space: pre-wrap } b { color: #08306b } .calls { columns: 3 16em; font: 14px/1.5 monospace }"
    print "@media (prefers-color-scheme: dark) { body { background: #12161d; color: #dde3ec } pre { background: #1b212b } b, a { color: #8fbaff } }"
    print "</style></head><body>\n<h1>Banyan: the C interface</h1>"
    print "<p>Every header of include/banyan, as it stands. #include &lt;banyan/banyan.h&gt; has all of them.</p>"
    print "<ul>" index_text "</ul>\n<h2>Functions</h2>\n<div class=\"calls\">"
    for (i = 1; i <= functions; i++)
        print "<a href=\"#" calls[i] "\">" calls[i] "</a><br>"
    print "</div>\n" body "</body></html>"
    exit bad > 0
}
