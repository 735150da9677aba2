# plot.awk - lines of "NAME X Y" to a small SVG with one line per name, in the order of their first point.
#   awk -v title=T -v xlabel=X -v ylabel=Y [-v logx=1] [-v logy=1] -f bench/plot.awk points >plot.svg
function place(v, lo, hi, from, to) { return from + (to - from) * (v - lo) / (hi - lo) }
function axis_value(v, is_log) { return is_log ? exp(v * log(10)) : v }
function text(x, y, anchor, what) {
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, what
}
NF == 3 && (!logx || $2 > 0) && (!logy || $3 > 0) {
    if (!($1 in count)) names[++n] = $1
    x = logx ? log($2) / log(10) : $2 + 0
    y = logy ? log($3) / log(10) : $3 + 0
    i = ++count[$1]
    xs[$1, i] = x
    ys[$1, i] = y
    if (!any++) { xlo = xhi = x; ylo = yhi = y }
    if (x < xlo) xlo = x
    if (x > xhi) xhi = x
    if (y < ylo) ylo = y
    if (y > yhi) yhi = y
}
END {
    split("#2866d8 #e0602b #0c8f6e #9a3fb5 #b8860b #c2305a #5c6b7a", colour, " ")
    if (xhi == xlo) xhi = xlo + 1
    if (yhi == ylo) yhi = ylo + 1
    room = (yhi - ylo) * 0.05
    ylo -= room
    yhi += room
    L = 70; R = 740; T = 70; B = 400
    apart = n <= 3 ? 225 : (R - L) / n # entries of the legend
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"780\" height=\"460\" font-family=\"sans-serif\" font-size=\"13\">"
    print "<rect width=\"780\" height=\"460\" fill=\"#fff\"/>"
    text(L, 26, "start", "<tspan font-size=\"16\">" title "</tspan>")
    for (i = 0; i <= 5; i++) {
        v = ylo + (yhi - ylo) * i / 5
        y = place(v, ylo, yhi, B, T)
        printf "<path d=\"M%d %.1fH%d\" stroke=\"#e4e8ee\"/>\n", L, y, R
        text(L - 8, y + 4, "end", sprintf("%.3g", axis_value(v, logy)))
        v = xlo + (xhi - xlo) * i / 5
        text(place(v, xlo, xhi, L, R), B + 20, "middle", sprintf("%.3g", axis_value(v, logx)))
    }
    text((L + R) / 2, B + 44, "middle", xlabel)
    printf "<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">%s</text>\n", (T + B) / 2, ylabel
    for (k = 1; k <= n; k++) {
        c = colour[(k - 1) % 7 + 1]
        d = ""
        for (i = 1; i <= count[names[k]]; i++)
            d = d sprintf("%s%.1f %.1f", i > 1 ? "L" : "M", place(xs[names[k], i], xlo, xhi, L, R),
                          place(ys[names[k], i], ylo, yhi, B, T))
        printf "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", d, c
        printf "<path d=\"M%d 50h20\" stroke=\"%s\" stroke-width=\"3\"/>\n", L + (k - 1) * apart, c
        text(L + 26 + (k - 1) * apart, 54, "start", names[k])
    }
    print "</svg>"
}
