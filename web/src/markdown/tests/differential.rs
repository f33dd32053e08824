//! The parser against another one, on documents that nobody would write.

use proptest::prelude::*;

use super::{super::*, cases, oracle};

/// Marks and words, each behind a `¦`: first of every kind, then of one, where what is rare becomes frequent.
const KINDS: [&str; 5] = [
    "> ¦>¦- ¦* ¦1. ¦2. ¦2) ¦# ¦## ¦ #¦---¦===¦```¦~~~¦    ¦  ¦ ¦`¦``¦*¦**¦_¦__¦***¦~~¦~¦[¦]¦(¦)¦![¦](¦](https://a.example)¦<¦>¦|¦|-|¦\
     |---|:-:|¦| a | b |¦:-:¦\\¦&amp;¦&#106;¦&copy;¦&nope;¦javascript:¦https://a.example¦<https://b.example>¦http://¦<a@b.example>¦//¦\
     <b>¦</b>¦<img src=x>¦<b x=\"¦<!--¦-->¦<?¦?>¦<!A¦<div>¦</div>¦<pre>¦</pre>¦[ ] ¦[x] ¦{¦}¦$¦[^1]¦- [ ] ¦+ ¦[a]¦\
     [a]: https://c.example¦[A][a]¦[a][]¦[b]: <https://d.example> \"x\"¦[b]:¦\"¦'¦\"t\"¦'t'¦(t)¦!¦.¦,¦\u{a0}¦\u{201c}¦\u{2014}¦\u{e9}¦\
     \u{4e2d}¦\u{1f600}",
    "*¦**¦_¦__¦***¦~~¦~¦ ¦a¦b¦\n¦.¦(¦)¦[¦](https://a.example)¦`¦\\¦![¦+¦$¦^¦\u{20ac}¦\u{a9}¦\u{26a0}\u{fe0f}¦e\u{301}¦\u{200b}¦\u{e000}¦\
     \u{300c}¦\u{ff01}¦\u{1f600}¦\u{ab}¦\u{2019}¦\u{2003}¦\u{ad}¦\u{200d}¦\u{661}¦\u{b2}¦\u{e48}¦\u{93f}¦\u{b7}¦\u{2028}¦\u{2460}¦\u{b4}¦\u{1}",
    "> ¦>¦- ¦* ¦+ ¦1. ¦2. ¦10. ¦0. ¦123456789. ¦1234567890. ¦-¦1.¦-\t¦>\t¦\t¦ ¦  ¦   ¦     ¦\n¦\n\n¦# ¦# a #¦####### ¦#\n¦---¦- - -¦\
     * * *¦===¦--¦```¦```rust\n¦~~~ a`b¦````¦<div>¦<DIV>¦<pre>¦<Script>¦</script>¦<p¦<hr/>¦<b>¦<a b='c'>¦<!-- x -->¦<!-->¦\
     |a|b|\n|-|-|\n¦|c|\n¦c|d|e\n¦[a]: https://c.example¦[a]¦- [ ] ¦[x] a¦a¦  \n¦\\\n",
    "|¦|¦-¦---¦:-¦\n¦\\¦ ¦`¦*¦\\|¦> ¦- ¦|-|-|¦|-|¦a",
    "[¦]¦(¦)¦[a]¦[a]:¦ ¦https://c.example¦<https://d.example>¦\"¦'¦t¦\\¦[a][b]¦[b]¦[b]:¦!¦<¦>¦`¦*¦&amp;",
];

fn document() -> impl Strategy<Value = String> {
    prop::sample::select(KINDS.to_vec()).prop_flat_map(|kind| {
        let piece = prop_oneof![
            6 => prop::sample::select(kind.split('¦').collect::<Vec<_>>()).prop_map(str::to_owned),
            1 => Just("\n".to_owned()),
            1 => "[a-c]{1,2}",
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(4_000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_document_gives_the_tree_that_another_parser_gives(source in document()) {
        if known(&source).is_none() {
            prop_assert_eq!(compare(&source), Ok(()));
        }
    }
}

/// Whether both give the same tree for `source`.
pub(super) fn compare(source: &str) -> Result<(), String> {
    // Blanks at the very end of a text are code here and nothing there, if a fence is open.
    let source = source.trim_end_matches([' ', '\t']);
    let (ours, theirs) = (comparable(parse(source)), comparable(oracle::parse(source)));
    let first = ours.iter().zip(&theirs).find(|(ours, theirs)| ours != theirs);
    match first {
        None if ours.len() == theirs.len() => Ok(()),
        first => Err(format!("{source:?} differs: {first:?} of {} and {} blocks", ours.len(), theirs.len())),
    }
}

type Shows = fn(&str) -> bool;

/// Where the two differ by intent, and what a source looks like that may show it. First where ours is what CommonMark or GFM ask
/// for and theirs is not, then where ours is simpler than these (see the module's documentation).
const KNOWN: [(&str, Shows); 21] = [
    ("a tab before a line end is no content and breaks no line", |source| has_tab_before(source, '\n')),
    ("a tab before HTML stays a tab", |source| has_tab_before(source, '<')),
    ("a tab before a quote's mark is four columns", |source| has_tab_before(source, '>')),
    ("a tab before the closing marks of a heading sets them off", |source| has_tab_before(source, '#')),
    ("an item may begin with code that looks like the box of a task", |source| has_tab_before(source, '[')),
    ("an escaped tilde is beside a run like any other mark", |source| source.contains("\\~")),
    ("runs of one and of two tildes do not get into each other's way", |source| {
        let runs: Vec<usize> = source.split(|c| c != '~').map(str::len).collect();
        runs.contains(&1) && runs.contains(&2)
    }),
    ("a head may end with a backslash", |source| source.lines().any(|line| line.contains('|') && line.ends_with('\\'))),
    ("delimiters are dashes with a colon at an end or two, and blanks around them", |source| source.lines().any(is_irregular)),
    ("the head of a table is within all containers that its next line is in", |source| {
        any_two(source, |line, next| text_of(line).starts_with('|') && next.contains('|') && marks_of(line) != marks_of(next))
    }),
    ("a line may break right before the end of a link", |source| {
        any_two(source, |line, next| line.ends_with('\\') && text_of(next).starts_with(']'))
    }),
    ("a title is set off from its address", |source| {
        source.contains("(<") && [">\"", ">'", ">("].iter().any(|behind| source.contains(behind))
    }),
    ("an escaped quote at the start of a line ends no title", |source| {
        any_two(source, |_, next| ["\\'", "\\\"", "\\)"].iter().any(|escaped| text_of(next).starts_with(escaped)))
    }),
    ("an escaped bracket begins no label", |source| source.contains("]\\[")),
    ("the marks of quotes are not part of the HTML in them", |source| {
        let mut lines = source.lines().skip_while(|line| !line.contains("<!") && !line.contains("<?"));
        lines.next().is_some() && lines.any(|line| line.trim_start().starts_with('>'))
    }),
    ("what is within CDATA is no Markdown", |source| source.contains("<![CDATA[")),
    ("an end tag ends HTML in whatever case", |source| ["</S", "</P", "</T"].iter().any(|tag| source.contains(tag))),
    ("a line end is one of three, in code too", |source| source.replace("\r\n", "").contains('\r')),
    // Simpler:
    ("the box of a task may be all there is", |source| {
        source.lines().any(|line| ["[ ]", "[x]", "[X]"].iter().any(|mark| line.trim_end().ends_with(mark)))
    }),
    ("a head right behind definitions begins with a pipe", |source| {
        any_two(source, |line, next| line.contains("]:") && next.contains('|') && !text_of(next).starts_with('|'))
    }),
    ("only the common names of characters are known", has_uncommon_name),
];

fn known(source: &str) -> Option<&'static str> {
    KNOWN.iter().find_map(|(reason, shown)| shown(source).then_some(*reason))
}

fn has_tab_before(source: &str, mark: char) -> bool {
    source.split(mark).rev().skip(1).any(|part| part[part.trim_end_matches([' ', '\t']).len()..].contains('\t'))
}

fn any_two(source: &str, holds: fn(&str, &str) -> bool) -> bool {
    source.lines().zip(source.lines().skip(1)).any(|(line, next)| holds(line, next))
}

fn text_of(line: &str) -> &str {
    line.trim_start_matches([' ', '>'])
}

fn marks_of(line: &str) -> &str {
    &line[..line.len() - text_of(line).len()]
}

fn is_irregular(line: &str) -> bool {
    let row = line.rsplit(|c| !"|:- \t".contains(c)).next().unwrap_or_default();
    let is_regular = |cell: &str| {
        let dashes = cell.strip_prefix(':').unwrap_or(cell);
        let dashes = dashes.strip_suffix(':').unwrap_or(dashes);
        !dashes.is_empty() && dashes.bytes().all(|byte| byte == b'-')
    };
    row.contains('|') && (row.contains('\t') || row.split('|').any(|cell| !cell.trim().is_empty() && !is_regular(cell.trim())))
}

fn has_uncommon_name(source: &str) -> bool {
    source.match_indices('&').any(|(i, _)| {
        let name = source[i + 1..].split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        source[i + 1 + name.len()..].starts_with(';') && entity::reference(source, i).is_none()
    })
}

/// Without what is not compared: blanks at the start of a line within code or HTML, which are not part of a paragraph.
fn comparable(nodes: Vec<Node>) -> Vec<Node> {
    nodes.into_iter().map(comparable_node).collect()
}

fn comparable_node(node: Node) -> Node {
    let Node::Element(mut element) = node else { return node };
    let text = |text: &str| match element.tag {
        Tag::Code => text.split_whitespace().collect::<Vec<_>>().join(" "),
        Tag::CodeBlock { .. } | Tag::Raw => text.to_owned(),
        _ => text
            .split('\n')
            .enumerate()
            .map(|(i, line)| if i == 0 { line } else { line.trim_start_matches([' ', '\t']) })
            .collect::<Vec<_>>()
            .join("\n"),
    };
    element.children = std::mem::take(&mut element.children)
        .into_iter()
        .map(|child| match child {
            Node::Text(string) => Node::Text(text(&string)),
            element => comparable_node(element),
        })
        .collect();
    Node::Element(element)
}
