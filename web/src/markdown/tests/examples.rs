//! What each construct becomes, section by section of CommonMark 0.31 and of GFM.

use super::super::*;

/// The tree in short: `p("text" em("more"))`.
fn show(nodes: &[Node]) -> String {
    nodes.iter().map(show_node).collect::<Vec<_>>().join(" ")
}

fn show_node(node: &Node) -> String {
    let element = match node {
        Node::Text(text) => return format!("{text:?}"),
        Node::Element(element) => element,
    };
    let align = |align| match align {
        Align::Start => "",
        Align::Center => "-center",
        Align::End => "-end",
    };
    let name = match &element.tag {
        Tag::Paragraph => "p".to_owned(),
        Tag::Heading(level) => format!("h{level}"),
        Tag::Quote => "quote".to_owned(),
        Tag::Rule => return "rule".to_owned(),
        Tag::List => "ul".to_owned(),
        Tag::Ordered(first) => format!("ol-{first}"),
        Tag::Item => "li".to_owned(),
        Tag::Check(done) => return if *done { "[x]" } else { "[ ]" }.to_owned(),
        Tag::CodeBlock { language } if language.is_empty() => "pre".to_owned(),
        Tag::CodeBlock { language } => format!("pre-{language}"),
        Tag::Raw => "raw".to_owned(),
        Tag::Code => "code".to_owned(),
        Tag::Emphasis => "em".to_owned(),
        Tag::Strong => "strong".to_owned(),
        Tag::Strike => "del".to_owned(),
        Tag::Break => return "br".to_owned(),
        Tag::Link(url) => format!("<{}>", url.as_str()),
        Tag::Table => "table".to_owned(),
        Tag::TableHead => "head".to_owned(),
        Tag::TableBody => "body".to_owned(),
        Tag::Row => "tr".to_owned(),
        Tag::HeadCell(side) => format!("th{}", align(*side)),
        Tag::Cell(side) => format!("td{}", align(*side)),
    };
    format!("{name}({})", show(&element.children))
}

/// Each source with its tree.
fn check(examples: &[(&str, &str)]) {
    for (source, expected) in examples {
        assert_eq!(show(&parse(source)), *expected, "{source:?}");
    }
}

/// Sections 4.8, 6.7, 6.8.
#[test]
fn paragraphs_and_breaks() {
    check(&[
        ("", ""),
        (" \n\t\n", ""),
        ("a\nb\n\nc", r#"p("a\nb") p("c")"#),
        ("   a\n      b  ", r#"p("a\nb")"#),
        ("a  \nb", r#"p("a" br "b")"#),
        ("a\\\nb", r#"p("a" br "b")"#),
        ("a \nb", r#"p("a\nb")"#),
        ("a\\", r#"p("a\\")"#),
        ("a  ", r#"p("a")"#),
        ("a\r\nb\r\n\r\nc\rd", r#"p("a\nb") p("c\nd")"#),
        ("a\n\n\n\nb", r#"p("a") p("b")"#),
    ]);
}

/// Sections 4.2, 4.3.
#[test]
fn headings() {
    check(&[
        ("# a", r#"h1("a")"#),
        ("###### a ##", r#"h6("a")"#),
        ("####### a", "p(\"####### a\")"),
        ("#a", r##"p("#a")"##),
        ("#", "h1()"),
        ("## #", "h2()"),
        ("# a#", r#"h1("a#")"#),
        ("# a \\#", r#"h1("a #")"#),
        ("#\ta\t#", r#"h1("a")"#),
        ("   # a\n    # b", r##"h1("a") pre("# b")"##),
        ("a\n# b\nc", r#"p("a") h1("b") p("c")"#),
        ("a\nb\n===", r#"h1("a\nb")"#),
        ("a\n---\nb", r#"h2("a") p("b")"#),
        ("a\n= =", r#"p("a\n= =")"#),
        ("> a\n---", r#"quote(p("a")) rule"#),
        ("===", r#"p("===")"#),
        ("- a\n  ---", r#"ul(li(h2("a")))"#),
    ]);
}

/// Sections 4.1.
#[test]
fn rules() {
    check(&[
        ("---", "rule"),
        (" * * *", "rule"),
        ("_ _ _ _ _ ", "rule"),
        ("--", r#"p("--")"#),
        ("a\n***\nb", r#"p("a") rule p("b")"#),
        ("- a\n***\n- b", r#"ul(li("a")) rule ul(li("b"))"#),
        ("+++", r#"p("+++")"#),
        ("    ---", r#"pre("---")"#),
    ]);
}

/// Sections 4.4, 4.5.
#[test]
fn code_blocks() {
    check(&[
        ("    a\n      b\n\n\n    c\n\n", r#"pre("a\n  b\n\n\nc\n")"#),
        ("a\n    b", r#"p("a\nb")"#),
        ("\ta", r#"pre("a")"#),
        ("```\na\n\nb\n```\nc", r#"pre("a\n\nb\n") p("c")"#),
        ("```rust extra\nfn\n```", r#"pre-rust("fn\n")"#),
        ("~~~ {.x}\na\n~~~~  ", r#"pre("a\n")"#),
        ("```\na", r#"pre("a")"#),
        ("```", "pre()"),
        ("``` a`b", r#"p("``` a`b")"#),
        ("  ```\n  a\n b\n    c\n  ```", r#"pre("a\nb\n  c\n")"#),
        ("````\n```\n````", r#"pre("```\n")"#),
        ("> ```\n> a\nb", r#"quote(pre("a\n")) p("b")"#),
        ("```\na\n    ```", r#"pre("a\n    ```")"#),
        ("```a\\_b&lt;c\n```", "pre-a_b<c()"),
        ("- ```\n  a\n\n  b\n  ```", r#"ul(li(pre("a\n\nb\n")))"#),
    ]);
}

/// Sections 4.6, 6.6.
#[test]
fn html() {
    check(&[
        ("<div>\n*a*\n\n*b*", r#"raw("<div>\n*a*\n") p(em("b"))"#),
        ("<!-- a\n\nb --> c\nd", r#"raw("<!-- a\n\nb --> c\n") p("d")"#),
        ("<pre>\n\n*a*\n</PRE>\n*b*", r#"raw("<pre>\n\n*a*\n</PRE>\n") p(em("b"))"#),
        ("a\n<div>", r#"p("a") raw("<div>")"#),
        ("a\n<b>\nc", r#"p("a\n<b>\nc")"#),
        ("<b>\n*c*", r#"raw("<b>\n*c*")"#),
        ("<b> c", r#"p("<b> c")"#),
        ("a <b x=\"*y*\">*c*</b>", r#"p("a <b x=\"*y*\">" em("c") "</b>")"#),
        ("a <!-- *b* --> c", r#"p("a <!-- *b* --> c")"#),
        ("a <? *b* ?>", r#"p("a <? *b* ?>")"#),
        ("a <!X *b*>", r#"p("a <!X *b*>")"#),
        ("a <![CDATA[*b*]]>", r#"p("a <![CDATA[*b*]]>")"#),
        ("a <b x=*y*>", r#"p("a <b x=*y*>")"#),
        ("a < b > c", r#"p("a < b > c")"#),
        ("</a b>", r#"p("</a b>")"#),
        (
            "<details>\n<summary>s</summary>\n\nt\n\n</details>",
            r#"raw("<details>\n<summary>s</summary>\n") p("t") raw("</details>")"#,
        ),
    ]);
}

/// Sections 5.1.
#[test]
fn quotes() {
    check(&[
        ("> a\n> b", r#"quote(p("a\nb"))"#),
        (">a\n>\n>b", r#"quote(p("a") p("b"))"#),
        ("> a\nb", r#"quote(p("a\nb"))"#),
        ("> a\n\nb", r#"quote(p("a")) p("b")"#),
        ("> > a\n> b", r#"quote(quote(p("a\nb")))"#),
        ("> - a\nb", r#"quote(ul(li("a\nb")))"#),
        ("> ```\na", r#"quote(pre()) p("a")"#),
        ("   > a", r#"quote(p("a"))"#),
        ("    > a", r#"pre("> a")"#),
        ("a\n> b", r#"p("a") quote(p("b"))"#),
        (">", "quote()"),
        ("> # a\n> - b", r#"quote(h1("a") ul(li("b")))"#),
    ]);
}

/// Sections 5.2, 5.3.
#[test]
fn lists() {
    check(&[
        ("- a\n- b", r#"ul(li("a") li("b"))"#),
        ("- a\n\n- b", r#"ul(li(p("a")) li(p("b")))"#),
        ("- a\n  b\n\n  c", r#"ul(li(p("a\nb") p("c")))"#),
        ("- a\n\n  c\n- d", r#"ul(li(p("a") p("c")) li(p("d")))"#),
        ("- a\n  - b\n    - c\n- d", r#"ul(li("a" ul(li("b" ul(li("c"))))) li("d"))"#),
        ("- a\n- b\n\n\nc", r#"ul(li("a") li("b")) p("c")"#),
        ("* a\n+ b\n- c", r#"ul(li("a")) ul(li("b")) ul(li("c"))"#),
        ("1. a\n2. b", r#"ol-1(li("a") li("b"))"#),
        ("3) a\n1) b", r#"ol-3(li("a") li("b"))"#),
        ("1. a\n1) b", r#"ol-1(li("a")) ol-1(li("b"))"#),
        ("a\n1. b", r#"p("a") ol-1(li("b"))"#),
        ("a\n2. b", r#"p("a\n2. b")"#),
        ("a\n-\nb", r#"h2("a") p("b")"#),
        ("-\n  a", r#"ul(li("a"))"#),
        ("-\n\n  a", r#"ul(li()) p("a")"#),
        ("- a\n\n      code", r#"ul(li(p("a") pre("code")))"#),
        ("-     code", r#"ul(li(pre("code")))"#),
        ("1234567890. a", r#"p("1234567890. a")"#),
        ("-a", r#"p("-a")"#),
        ("- a\n b", r#"ul(li("a\nb"))"#),
        ("- a\n\n b", r#"ul(li("a")) p("b")"#),
        ("-\ta\n\n\tb", r#"ul(li(p("a") p("b")))"#),
        ("- - a", r#"ul(li(ul(li("a"))))"#),
        ("- a\n  > b\n  >\n- c", r#"ul(li("a" quote(p("b"))) li("c"))"#),
        ("- a\n  ```\n  b\n\n  ```\n- c", r#"ul(li("a" pre("b\n\n")) li("c"))"#),
        ("- a\n  - b\n\n  c", r#"ul(li(p("a") ul(li("b")) p("c")))"#),
        ("10. a\n    b\n\n    - c", r#"ol-10(li(p("a\nb") ul(li("c"))))"#),
    ]);
}

/// GFM 5.3.
#[test]
fn tasks() {
    check(&[
        ("- [ ] a\n- [x] b\n- [X] c", r#"ul(li([ ] "a") li([x] "b") li([x] "c"))"#),
        ("- [ ]", "ul(li([ ]))"),
        ("- [ ]a", r#"ul(li("[ ]a"))"#),
        ("- [y] a", r#"ul(li("[y] a"))"#),
        ("1. [x] a", r#"ol-1(li([x] "a"))"#),
        ("[ ] a", r#"p("[ ] a")"#),
        ("- [x] a\n\n- b", r#"ul(li(p([x] "a")) li(p("b")))"#),
        ("- [ ] # a", r##"ul(li([ ] "# a"))"##),
        ("- a\n  - [x] b", r#"ul(li("a" ul(li([x] "b"))))"#),
        ("- [ ] a\n  b", r#"ul(li([ ] "a\nb"))"#),
        ("- `[ ]` a", r#"ul(li(code("[ ]") " a"))"#),
        ("- [x] a\n  ===", r#"ul(li(h1([x] "a")))"#),
    ]);
}

/// GFM 4.10.
#[test]
fn tables() {
    check(&[
        ("|a|b|\n|-|-|\n|c|d|", r#"table(head(tr(th("a") th("b"))) body(tr(td("c") td("d"))))"#),
        ("a | b\n:-|:-:\nc | d\n\ne", r#"table(head(tr(th("a") th-center("b"))) body(tr(td("c") td-center("d")))) p("e")"#),
        ("| a |\n|--:|", r#"table(head(tr(th-end("a"))))"#),
        ("|a|\n|-|-|", r#"p("|a|\n|-|-|")"#),
        ("a\n| b |\n|---|\n| c |", r#"p("a") table(head(tr(th("b"))) body(tr(td("c"))))"#),
        ("a\nb | c\n--|--", r#"p("a\nb | c\n--|--")"#),
        ("|a|b|\n|-|-|\n|c|\n|d|e|f|", r#"table(head(tr(th("a") th("b"))) body(tr(td("c") td()) tr(td("d") td("e"))))"#),
        ("|a|\n|-|\n| `x\\|y` \\| z |", r#"table(head(tr(th("a"))) body(tr(td(code("x|y") " | z"))))"#),
        ("|a|\n|-|\nb\n> c", r#"table(head(tr(th("a"))) body(tr(td("b")))) quote(p("c"))"#),
        ("|a|\n|-|\n- c", r#"table(head(tr(th("a")))) ul(li("c"))"#),
        ("|a|\n|-|\n||", r#"table(head(tr(th("a"))) body(tr(td())))"#),
        ("|a|\n|-|\n|", r#"table(head(tr(th("a")))) p("|")"#),
        ("> |a|\n> |-|\n> |b|\nc", r#"quote(table(head(tr(th("a"))) body(tr(td("b"))))) p("c")"#),
        ("- |a|\n  |-|\n  |*b*|", r#"ul(li(table(head(tr(th("a"))) body(tr(td(em("b")))))))"#),
        ("|a|\n|:|", r#"p("|a|\n|:|")"#),
        ("|a|b|\n|-|-|\n| | c |", r#"table(head(tr(th("a") th("b"))) body(tr(td() td("c"))))"#),
        (
            "| a | b |\n| - | - |\n| <b> | https://a.example |",
            r#"table(head(tr(th("a") th("b"))) body(tr(td("<b>") td(<https://a.example>("https://a.example")))))"#,
        ),
        ("|a|\n|-|\n\n|b|", r#"table(head(tr(th("a")))) p("|b|")"#),
    ]);
}

/// Sections 6.1.
#[test]
fn code_spans() {
    check(&[
        ("`a`", r#"p(code("a"))"#),
        ("`` a`b ``", r#"p(code("a`b"))"#),
        ("` `", r#"p(code(" "))"#),
        ("`  a `", r#"p(code(" a"))"#),
        ("`a\nb`", r#"p(code("a b"))"#),
        ("`a", r#"p("`a")"#),
        ("```a``", r#"p("```a``")"#),
        ("`a\\`b`", r#"p(code("a\\") "b`")"#),
        ("\\`a`", r#"p("`a`")"#),
        ("`*a*`", r#"p(code("*a*"))"#),
        ("*a`*`", r#"p("*a" code("*"))"#),
        ("`<b>`", r#"p(code("<b>"))"#),
        ("``a`", r#"p("``a`")"#),
    ]);
}

/// Sections 6.2.
#[test]
fn emphasis() {
    check(&[
        ("*a* _b_", r#"p(em("a") " " em("b"))"#),
        ("**a** __b__", r#"p(strong("a") " " strong("b"))"#),
        ("***a***", r#"p(em(strong("a")))"#),
        ("****a****", r#"p(strong(strong("a")))"#),
        ("*a **b** c*", r#"p(em("a " strong("b") " c"))"#),
        ("**a *b* c**", r#"p(strong("a " em("b") " c"))"#),
        ("*a* b*", r#"p(em("a") " b*")"#),
        ("a*b*c", r#"p("a" em("b") "c")"#),
        ("a_b_c", r#"p("a_b_c")"#),
        ("_a_b", r#"p("_a_b")"#),
        ("* a*", r#"ul(li("a*"))"#),
        ("*a *", r#"p("*a *")"#),
        ("**a*", r#"p("*" em("a"))"#),
        ("*a**", r#"p(em("a") "*")"#),
        ("*a _b* c_", r#"p(em("a _b") " c_")"#),
        ("**a **b** c**", r#"p(strong("a " strong("b") " c"))"#),
        ("*(a)*b", r#"p("*(a)*b")"#),
        ("**a**中", r#"p(strong("a") "中")"#),
        ("中**a**中", r#"p("中" strong("a") "中")"#),
        ("**「a」**中", r#"p("**「a」**中")"#),
        ("**ท\u{e35}\u{e48}**ด\u{e35}", r#"p(strong("ท\u{e35}\u{e48}") "ด\u{e35}")"#),
        ("**⚠\u{fe0f}**a", r#"p(strong("⚠\u{fe0f}") "a")"#),
        ("**€**a", r#"p("**€**a")"#),
        ("\\*a\\*", r#"p("*a*")"#),
        ("*a\n\nb*", r#"p("*a") p("b*")"#),
        ("*a `*` b*", r#"p(em("a " code("*") " b"))"#),
        ("*[a*](https://a.example)", r#"p("*" <https://a.example>("a*"))"#),
        ("_(_a_)_", r#"p(em("(" em("a") ")"))"#),
        ("foo***bar***baz", r#"p("foo" em(strong("bar")) "baz")"#),
        ("*a**b**c*", r#"p(em("a" strong("b") "c"))"#),
        ("***a* b**", r#"p(strong(em("a") " b"))"#),
        ("***a** b*", r#"p(em(strong("a") " b"))"#),
    ]);
}

/// GFM 6.5.
#[test]
fn strikethrough() {
    check(&[
        ("~~a~~", r#"p(del("a"))"#),
        ("~a~", r#"p(del("a"))"#),
        ("~~~a~~~", "pre-a~~~()"),
        ("~~a~", r#"p("~~a~")"#),
        ("a~~b~~c", r#"p("a" del("b") "c")"#),
        ("a~b~c", r#"p("a~b~c")"#),
        ("~5 and ~6", r#"p("~5 and ~6")"#),
        ("~~a *b*~~", r#"p(del("a " em("b")))"#),
        ("*a ~~b* c~~", r#"p(em("a ~~b") " c~~")"#),
    ]);
}

/// Sections 6.3.
#[test]
fn links() {
    check(&[
        ("[a](https://a.example)", r#"p(<https://a.example>("a"))"#),
        ("[a](<https://a.example/b c>)", r#"p("a")"#),
        ("[a](https://a.example/(b)c)", r#"p(<https://a.example/(b)c>("a"))"#),
        ("[a](https://a.example \"t\")", r#"p(<https://a.example>("a"))"#),
        ("[a](https://a.example 't' )", r#"p(<https://a.example>("a"))"#),
        ("[a]( https://a.example (t) )", r#"p(<https://a.example>("a"))"#),
        ("[a](https://a.example \"t)", r#"p("[a](" <https://a.example>("https://a.example") " \"t)")"#),
        ("[a] (https://a.example)", r#"p("[a] (" <https://a.example>("https://a.example") ")")"#),
        ("[a](b c)", r#"p("[a](b c)")"#),
        ("[a]()", r#"p("a")"#),
        ("[](https://a.example)", r#"p(<https://a.example>("https://a.example"))"#),
        ("[*a* `b`](https://a.example)", r#"p(<https://a.example>(em("a") " " code("b")))"#),
        ("[a](https://a.example/\\(b)", r#"p(<https://a.example/(b>("a"))"#),
        ("[a](https://a.example/?x&amp;y)", r#"p(<https://a.example/?x&y>("a"))"#),
        (
            "[a [b](https://b.example)](https://a.example)",
            r#"p("[a " <https://b.example>("b") "](" <https://a.example>("https://a.example") ")")"#,
        ),
        ("[a](../b)", r#"p("a")"#),
        ("*[a](https://a.example)*", r#"p(em(<https://a.example>("a")))"#),
        ("[a\\]b](https://a.example)", r#"p(<https://a.example>("a]b"))"#),
        ("[a](\nhttps://a.example\n\"t\"\n)", r#"p(<https://a.example>("a"))"#),
        ("[a](https://a.example)(b)", r#"p(<https://a.example>("a") "(b)")"#),
        ("[a `]` b](https://a.example)", r#"p(<https://a.example>("a " code("]") " b"))"#),
        ("[a <b x=\"]\"> c](https://a.example)", r#"p(<https://a.example>("a <b x=\"]\"> c"))"#),
        ("[a](<b\nc>)", r#"p("[a](<b\nc>)")"#),
    ]);
}

/// Sections 6.4.
#[test]
fn images() {
    check(&[
        ("![a](https://a.example/b.png)", r#"p(<https://a.example/b.png>("a"))"#),
        ("![](https://a.example/b.png)", r#"p(<https://a.example/b.png>("https://a.example/b.png"))"#),
        ("![a *b*](https://a.example)", r#"p(<https://a.example>("a " em("b")))"#),
        ("!\\[a](https://a.example)", r#"p("![a](" <https://a.example>("https://a.example") ")")"#),
        ("![a [b](https://b.example)](https://a.example)", r#"p(<https://a.example>("a b"))"#),
        ("!a", r#"p("!a")"#),
        ("![a]\n\n[a]: https://a.example", r#"p(<https://a.example>("a"))"#),
    ]);
}

/// Sections 4.7.
#[test]
fn definitions() {
    check(&[
        (
            "[a]: https://a.example\n\n[a] [A][] [b][a] ![c][a]",
            r#"p(<https://a.example>("a") " " <https://a.example>("A") " " <https://a.example>("b") " " <https://a.example>("c"))"#,
        ),
        ("[a]\n\n[ a\n b ]: https://a.example", r#"p("[a]")"#),
        ("[a b]\n\n[A\n B]: <https://a.example>", r#"p(<https://a.example>("a b"))"#),
        ("[a]:\nhttps://a.example\n'title'\n\n[a]", r#"p(<https://a.example>("a"))"#),
        ("[a]: https://a.example\n[b]: https://b.example 't'\nc [a][b]", r#"p("c " <https://b.example>("a"))"#),
        ("[a]: https://a.example x\n\n[a]", r#"p("[a]: " <https://a.example>("https://a.example") " x") p("[a]")"#),
        ("b\n[a]: https://a.example\n\n[a]", r#"p("b\n[a]: " <https://a.example>("https://a.example")) p("[a]")"#),
        ("[a]: https://a.example\n[a]: https://b.example\n\n[a]", r#"p(<https://a.example>("a"))"#),
        ("[a]: <>\n\n[a]", r#"p("a")"#),
        ("[a]:\n\n[a]", r#"p("[a]:") p("[a]")"#),
        ("> [a]: https://a.example\n\n[a]", r#"quote() p(<https://a.example>("a"))"#),
        ("[a]: https://a.example\n===\n[a]", r#"p("===\n" <https://a.example>("a"))"#),
        ("[a]: https://a.example\n'b\n\n[a]", r#"p("'b") p(<https://a.example>("a"))"#),
        ("[ ]: https://a.example\n\n[ ]", r#"p("[ ]: " <https://a.example>("https://a.example")) p("[ ]")"#),
        ("[a][b]\n\n[a]: https://a.example", r#"p("[a][b]")"#),
        ("[a] (b)\n\n[a]: https://a.example", r#"p(<https://a.example>("a") " (b)")"#),
        ("[Ä]\n\n[ä]: https://a.example", r#"p("[Ä]")"#),
        ("[a\\]]\n\n[a\\]]: https://a.example", r#"p(<https://a.example>("a]"))"#),
    ]);
}

/// Sections 6.5.
#[test]
fn addresses() {
    check(&[
        ("<https://a.example/*b*>", r#"p(<https://a.example/*b*>("https://a.example/*b*"))"#),
        ("<HTTP://a.example>", r#"p(<http://a.example>("HTTP://a.example"))"#),
        ("<ftp://a.example>", r#"p("ftp://a.example")"#),
        ("<a@b.example>", r#"p(<mailto:a@b.example>("a@b.example"))"#),
        ("<mailto:a@b.example>", r#"p(<mailto:a@b.example>("mailto:a@b.example"))"#),
        ("<a.b>", r#"p("<a.b>")"#),
        ("<https://a.example b>", r#"p("<" <https://a.example>("https://a.example") " b>")"#),
        ("a https://a.example/b_c_d, b", r#"p("a " <https://a.example/b_c_d>("https://a.example/b_c_d") ", b")"#),
        ("\\<https://a.example>", r#"p("<" <https://a.example>("https://a.example") ">")"#),
        ("<a@-b.example>", r#"p("<a@-b.example>")"#),
        ("[a <https://b.example>](https://a.example)", r#"p(<https://a.example>("a https://b.example"))"#),
    ]);
}

/// Sections 2.4, 2.5.
#[test]
fn escapes_and_references() {
    check(&[
        (
            "\\!\\\"\\#\\$\\%\\&\\'\\(\\)\\*\\+\\,\\-\\.\\/\\:\\;\\<\\=\\>\\?\\@\\[\\\\\\]\\^\\_\\`\\{\\|\\}\\~",
            r##"p("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")"##,
        ),
        ("\\a \\é \\ ", r#"p("\\a \\é \\")"#),
        ("&amp;&lt;&gt;&quot;&apos;", r#"p("&<>\"'")"#),
        ("&copy; &hellip; &mdash; &larr;&rarr; &times; &deg; &euro; a&nbsp;b", r#"p("© … — ←→ × ° € a\u{a0}b")"#),
        ("&#65;&#x41;&#X1f600;", r#"p("AA😀")"#),
        ("&#0; &#x110000; &#xd800;", r#"p("� � �")"#),
        ("&#12345678; &#x1234567; &#; &#x; &#a;", r#"p("&#12345678; &#x1234567; &#; &#x; &#a;")"#),
        ("&Ouml; &amp &unknown;", r#"p("&Ouml; &amp &unknown;")"#),
        ("&#42;a&#42;", r#"p("*a*")"#),
        ("`&amp;`", r#"p(code("&amp;"))"#),
        ("\\&amp;", r#"p("&amp;")"#),
        ("# &amp;", r#"h1("&")"#),
    ]);
}
