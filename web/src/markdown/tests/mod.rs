mod differential;
mod examples;
mod hostile;
mod oracle;

use proptest::prelude::*;

use super::*;

/// How many cases a property is tried on: `TURNFAST_MARKDOWN_CASES`, or so many.
fn cases(otherwise: u32) -> u32 {
    std::env::var("TURNFAST_MARKDOWN_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(otherwise)
}

/// Every link, with its text.
fn links(nodes: &[Node]) -> Vec<(String, String)> {
    let mut out = Vec::new();
    walk(nodes, 1, &mut |node, _| {
        if let Node::Element(Element { tag: Tag::Link(url), .. }) = node {
            out.push((url.as_str().to_owned(), node.plain_text()));
        }
    });
    out
}

fn walk(nodes: &[Node], depth: usize, visit: &mut impl FnMut(&Node, usize)) {
    for node in nodes {
        visit(node, depth);
        if let Node::Element(element) = node {
            walk(&element.children, depth + 1, visit);
        }
    }
}

fn all_text(nodes: &[Node]) -> String {
    nodes.iter().map(Node::plain_text).collect()
}

fn para(children: Vec<Node>) -> Node {
    Node::element(Tag::Paragraph, children)
}

fn text(text: &str) -> Node {
    Node::Text(text.to_owned())
}

/// What must hold of every document, checked without the code that makes it hold.
fn check_allowed(source: &str, nodes: &[Node]) {
    let mut count = 0;
    walk(nodes, 1, &mut |node, depth| {
        count += 1;
        // A text may stand in an innermost element.
        assert!(depth <= MAX_DEPTH + 1, "depth {depth}");
        let Node::Element(element) = node else { return };
        for child in &element.children {
            check_parent(&element.tag, child);
        }
        if let Tag::Link(url) = &element.tag {
            let url = url.as_str();
            assert!(["http://", "https://", "mailto:"].iter().any(|scheme| url.starts_with(scheme)), "{url:?}");
            assert!(!url.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\'), "{url:?}");
            walk(&element.children, 1, &mut |inner, _| {
                assert!(!matches!(inner, Node::Element(Element { tag: Tag::Link(_), .. })), "a link in a link");
            });
        }
    });
    // Some nodes may come after the one that reaches the bound: the rest as text, and text within open elements.
    assert!(count <= MAX_NODES + 16, "{count} nodes of {} bytes", source.len());
    for node in nodes {
        assert!(matches!(node, Node::Element(_)), "a document holds blocks");
    }
}

fn check_parent(parent: &Tag, child: &Node) {
    let child_tag = match child {
        Node::Element(element) => Some(&element.tag),
        Node::Text(_) => None,
    };
    let fits = match parent {
        Tag::List | Tag::Ordered(_) => matches!(child_tag, Some(Tag::Item)),
        Tag::Table => matches!(child_tag, Some(Tag::TableHead | Tag::TableBody)),
        Tag::TableHead | Tag::TableBody => matches!(child_tag, Some(Tag::Row)),
        Tag::Row => matches!(child_tag, Some(Tag::HeadCell(_) | Tag::Cell(_))),
        Tag::CodeBlock { .. } | Tag::Code | Tag::Raw => child_tag.is_none(),
        Tag::Rule | Tag::Break | Tag::Check(_) => false,
        _ => !matches!(child_tag, Some(Tag::Item | Tag::TableHead | Tag::TableBody | Tag::Row | Tag::HeadCell(_) | Tag::Cell(_))),
    };
    assert!(fits, "{child:?} in {parent:?}");
}

#[test]
fn ordinary_markdown_becomes_what_it_means() {
    assert_eq!(
        parse("# A\n\none *two* **three** `four` ~~five~~"),
        [
            Node::element(Tag::Heading(1), vec![text("A")]),
            para(vec![
                text("one "),
                Node::element(Tag::Emphasis, vec![text("two")]),
                text(" "),
                Node::element(Tag::Strong, vec![text("three")]),
                text(" "),
                Node::element(Tag::Code, vec![text("four")]),
                text(" "),
                Node::element(Tag::Strike, vec![text("five")]),
            ]),
        ]
    );
    assert_eq!(
        parse("```rust,ignore\nlet x = \"<b>\";\n```"),
        [Node::element(Tag::CodeBlock { language: "rust".to_owned() }, vec![text("let x = \"<b>\";\n")])]
    );
    assert_eq!(
        parse("3. a\n4. b"),
        [Node::element(
            Tag::Ordered(3),
            vec![Node::element(Tag::Item, vec![text("a")]), Node::element(Tag::Item, vec![text("b")])]
        )]
    );
    assert_eq!(
        parse("- [x] done"),
        [Node::element(Tag::List, vec![Node::element(Tag::Item, vec![Node::element(Tag::Check(true), vec![]), text("done")])])]
    );
    assert_eq!(parse("> q\n\n---"), [Node::element(Tag::Quote, vec![para(vec![text("q")])]), Node::element(Tag::Rule, vec![])]);
}

#[test]
fn a_table_has_a_head_a_body_and_alignments() {
    let cell = |tag, content: &str| Node::element(tag, vec![text(content)]);
    assert_eq!(
        parse("| a | b |\n|---|--:|\n| 1 | 2 |"),
        [Node::element(
            Tag::Table,
            vec![
                Node::element(
                    Tag::TableHead,
                    vec![Node::element(
                        Tag::Row,
                        vec![cell(Tag::HeadCell(Align::Start), "a"), cell(Tag::HeadCell(Align::End), "b")]
                    )]
                ),
                Node::element(
                    Tag::TableBody,
                    vec![Node::element(Tag::Row, vec![cell(Tag::Cell(Align::Start), "1"), cell(Tag::Cell(Align::End), "2")])]
                ),
            ]
        )]
    );
}

#[test]
fn raw_html_is_text() {
    for source in [
        "<script>alert(1)</script>",
        "a <img src=x onerror=alert(1)> b",
        "<iframe src=\"https://evil.example\"></iframe>",
        "<svg/onload=alert(1)>",
        "<!-- <b>hidden</b> -->",
        "<style>*{display:none}</style>",
        "<a href=\"javascript:alert(1)\">x</a>",
        "<math><mtext></mtext><mglyph><style><!--</style><img src=x onerror=alert(1)>",
    ] {
        let nodes = parse(source);
        check_allowed(source, &nodes);
        assert_eq!(all_text(&nodes).trim(), source, "shown as it was written");
        assert!(!links(&nodes).iter().any(|(url, _)| url.contains("javascript")), "{source}");
    }
}

#[test]
fn only_web_and_mail_addresses_become_links() {
    for address in [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        " javascript:alert(1)",
        "java&#10;script:alert(1)",
        "java&Tab;script:alert(1)",
        "&#106;avascript:alert(1)",
        "&#x6A&#x61&#x76&#x61&#x73&#x63&#x72&#x69&#x70&#x74&#x3A;alert(1)",
        "javascript&colon;alert(1)",
        "\u{1}javascript:alert(1)",
        "\u{feff}javascript:alert(1)",
        "vbscript:msgbox(1)",
        "data:text/html,<script>alert(1)</script>",
        "data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==",
        "DATA:image/svg+xml,x",
        "file:///etc/passwd",
        "blob:https://example.org/x",
        "filesystem:https://example.org/x",
        "view-source:https://example.org",
        "intent://x#Intent;end",
        "ftp://example.org/x",
        "//evil.example/x",
        "/auth/logout",
        "../x",
        "#top",
        "?a=b",
        "",
        "https:evil.example",
        "https:/evil.example",
        "https:\\\\evil.example",
        "https://\\evil.example",
        "https://bank.example@evil.example/",
        "https://user:pass@evil.example/",
        "https://",
        "https:///x",
        "https://:80/x",
        "https://a.example/\u{202e}gpj.exe",
        "mailto:",
        "mailto://x@y",
    ] {
        for source in [
            format!("[label](<{address}>)"),
            format!("![label](<{address}>)"),
            format!("<{address}>"),
            format!("[label]\n\n[label]: <{address}>"),
        ] {
            let nodes = parse(&source);
            check_allowed(&source, &nodes);
            let found = links(&nodes);
            assert!(found.is_empty(), "{source:?} became {found:?}");
        }
    }
    for (address, expected) in [
        ("https://example.org/a?b=c#d", "https://example.org/a?b=c#d"),
        ("HTTP://Example.org", "http://Example.org"),
        ("mailto:a@example.org", "mailto:a@example.org"),
        ("https://[::1]:8080/x", "https://[::1]:8080/x"),
        ("https://example.org/a@b", "https://example.org/a@b"),
    ] {
        assert_eq!(links(&parse(&format!("[label](<{address}>)"))), [(expected.to_owned(), "label".to_owned())]);
    }
}

#[test]
fn an_image_is_a_link_and_never_loads() {
    let nodes = parse("![a cat](https://evil.example/pixel.png)");
    assert_eq!(links(&nodes), [("https://evil.example/pixel.png".to_owned(), "a cat".to_owned())]);
    let nodes = parse("![](https://evil.example/pixel.png)");
    assert_eq!(links(&nodes), [("https://evil.example/pixel.png".to_owned(), "https://evil.example/pixel.png".to_owned())]);
    assert_eq!(
        links(&parse("[![alt](https://a.example/i.png)](https://b.example)")),
        [("https://b.example".to_owned(), "alt".to_owned())]
    );
}

#[test]
fn bare_addresses_become_links_without_the_sentence_around_them() {
    for (source, expected) in [
        ("see https://example.org/a_b_c, please", "https://example.org/a_b_c"),
        ("(https://example.org/a)", "https://example.org/a"),
        ("https://en.example.org/wiki/A_(b).", "https://en.example.org/wiki/A_(b)"),
        ("**https://example.org**", "https://example.org"),
        ("at HTTPS://example.org!", "https://example.org"),
    ] {
        let found = links(&parse(source));
        assert_eq!(found.iter().map(|(url, _)| url.as_str()).collect::<Vec<_>>(), [expected], "{source}");
        assert_eq!(all_text(&parse(source)).trim(), source.replace("**", ""));
    }
    for source in [
        "`https://example.org`",
        "```\nhttps://example.org\n```",
        "xhttps://example.org",
        "javascript://example.org/%0aalert(1)",
        "://",
        "https://",
        "é://x",
    ] {
        assert_eq!(links(&parse(source)), [], "{source}");
    }
    let two = links(&parse("https://a.example https://b.example"));
    assert_eq!(two.len(), 2);
}

#[test]
fn deep_nesting_keeps_its_text_and_goes_only_so_deep() {
    let deep = 10_000;
    for source in [
        format!("{} end", ">".repeat(deep)),
        format!("{} end", "> ".repeat(deep)),
        format!("{} end", "- ".repeat(deep)),
        format!("{} end", "1. ".repeat(deep)),
        format!("{} end", "> - ".repeat(deep)),
        format!("{}end{}", "*a ".repeat(deep), "*".repeat(deep)),
        format!("{}end{}", "[".repeat(deep), "](https://a.example)".repeat(deep)),
        format!("end {}", "https://a.example/(".repeat(deep)),
        format!("end {}", format!("https://a.example/{}", ")".repeat(4_000)).repeat(50)),
        format!("{}end{}", "![".repeat(deep), "](https://a.example)".repeat(deep)),
        format!("{}end", "<b>".repeat(deep)),
        format!("x{}end", "`".repeat(deep)),
        format!("{}end", "**_~~".repeat(deep)),
        (0..400).map(|i| format!("{}- end\n", "  ".repeat(i))).collect(),
    ] {
        let nodes = parse(&source);
        check_allowed(&source, &nodes);
        assert!(all_text(&nodes).contains("end"), "{}", &source[..20]);
    }
}

#[test]
fn huge_tables_are_bounded() {
    let wide = format!("{}\n{}\n{}", "|a".repeat(20_000), "|-".repeat(20_000), "|b\n".repeat(2_000));
    let nodes = parse(&wide);
    check_allowed(&wide, &nodes);
    let long = format!("|a|b|\n|-|-|\n{}last line", "|c|d|\n".repeat(60_000));
    let nodes = parse(&long);
    check_allowed(&long, &nodes);
    assert!(matches!(nodes.last(), Some(Node::Element(Element { tag: Tag::Raw, .. }))));
    assert!(all_text(&nodes).ends_with("last line"), "what does not fit is shown as it was written");
}

#[test]
fn a_document_that_grows_closes_blocks_and_keeps_them() {
    let mut document = Document::default();
    assert_eq!(document.update("one\n\ntwo"), Some(0));
    assert_eq!(document.update("one\n\ntwo"), None);
    assert_eq!(document.update("one\n\ntwo\n\nthree\n"), Some(0));
    assert_eq!(document.update("one\n\ntwo\n\nthree\n\nfour"), Some(2), "one and two are closed");
    assert_eq!(document.blocks(), parse("one\n\ntwo\n\nthree\n\nfour"));
    assert_eq!(document.update("another"), Some(0), "other text begins anew");
    assert_eq!(document.blocks(), parse("another"));
}

#[test]
fn a_late_definition_counts_at_the_end() {
    let source = "see [it]\n\nmore\n\nmore\n\n[it]: https://example.org\n";
    let mut document = Document::default();
    for end in 1..=source.len() {
        document.update(&source[..end]);
    }
    assert_eq!(links(document.blocks()), []);
    assert_eq!(document.finish(), Some(0));
    assert_eq!(document.blocks(), parse(source));
    assert_eq!(links(document.blocks()).len(), 1);
    assert_eq!(document.finish(), None);
}

#[test]
fn the_bound_counts_over_all_of_a_growing_document() {
    let mut document = Document::default();
    let mut source = String::new();
    for _ in 0..12 {
        source.push_str(&"*a*\n\n".repeat(1_500));
        document.update(&source);
        check_allowed(&source, document.blocks());
    }
}

/// Markdown's own marks, and what attackers write, in any order.
fn hostile(most: usize) -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        8 => prop::sample::select(vec![
            "> ", "- ", "* ", "1. ", "2) ", "# ", "## ", "---", "===", "```", "~~~", "    ", "\t", "`", "*", "**", "_", "~~", "[", "]",
            "(", ")", "![", "](", "<", ">", "|", "|-|", ":-:", "\\", "&#106;", "&colon;", "&Tab;", "javascript:", "data:text/html,",
            "vbscript:", "https://a.example", "http://", "mailto:a@b", "//", "<script>", "</script>", "<img src=x onerror=y>", "<!--",
            "-->", "<div>", "[ ] ", "[x] ", "{", "}", "$", "[^1]", "\u{202e}", "\u{0}", "\r", "- [ ] ", "+ ",
        ]).prop_map(str::to_owned),
        4 => Just("\n".to_owned()),
        2 => Just("\n\n".to_owned()),
        4 => "[a-c é\u{4e2d}]{1,6}",
        1 => any::<String>(),
    ];
    prop::collection::vec(pieces, 0..most).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(2_000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_in_only_what_is_allowed_comes_out(source in hostile(60)) {
        check_allowed(&source, &parse(&source));
    }

    #[test]
    fn growing_piece_by_piece_ends_as_reading_the_whole(source in hostile(60), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20)) {
        let source = source.replace("]:", "]");
        let mut ends: Vec<usize> = cuts.iter().map(|cut| source.floor_char_boundary(cut.index(source.len() + 1))).collect();
        ends.push(source.len());
        ends.sort_unstable();
        let mut document = Document::default();
        let mut shown: Vec<Node> = Vec::new();
        for end in ends {
            if let Some(from) = document.update(&source[..end]) {
                prop_assert!(from <= shown.len());
                prop_assert_eq!(&document.blocks()[..from], &shown[..from], "what was said to stay stayed");
                shown = document.blocks().to_vec();
            }
        }
        prop_assert_eq!(document.blocks(), parse(&source));
    }
}

#[test]
fn a_safe_address_says_what_it_is() {
    assert_eq!(SafeUrl::parse("https://example.org").unwrap().as_str(), "https://example.org");
}
