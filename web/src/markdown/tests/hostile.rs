//! Input that was made to hurt: what it costs, what becomes of it, and what is kept of it.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::{super::*, all_text, cases, check_allowed, differential, hostile};
use crate::markdown::{parse::parse_blocks, scan::take_work};

type Shape = fn(usize) -> String;

/// Inputs of any size that make a careless parser look at the same bytes again and again. Each takes `n`, and is about as long as
/// a multiple of that.
const SHAPES: [(&str, Shape); 46] = [
    ("open brackets", |n| "[".repeat(n)),
    ("open images", |n| "![".repeat(n)),
    ("images over brackets", |n| "![[[[".repeat(n)),
    ("closed brackets", |n| "]".repeat(n)),
    ("brackets in brackets", |n| "[".repeat(n) + &"]".repeat(n)),
    ("links in links", |n| "[".repeat(n) + &"](https://a.example)".repeat(n)),
    ("links after brackets", |n| "[".repeat(n) + &"[a](b)".repeat(n)),
    ("links after images", |n| "![".repeat(n) + &"[a](b)".repeat(n)),
    ("unclosed targets", |n| "[a](b".repeat(n)),
    ("unclosed angle targets", |n| "[a](<b".repeat(n)),
    ("parentheses in targets", |n| "[a](".to_owned() + &"(".repeat(n)),
    ("unclosed titles", |n| "[a](b \"c".repeat(n)),
    ("titles in turn", |n| "[a](b \"c [a](b 'c [a](b (c ".repeat(n)),
    ("labels after labels", |n| "[a]: b\n\n".to_owned() + &"[a][b]".repeat(n)),
    ("labels in labels", |n| "[a]: b\n\n".to_owned() + &"[a".repeat(n) + &"]".repeat(n)),
    ("long labels", |n| "[a]: b\n\n".to_owned() + &format!("[{}]", "a ".repeat(450)).repeat(n / 1_000 + 1)),
    ("definitions", |n| (0..n).map(|i| format!("[{i}]: b\n")).collect()),
    ("definitions of one label", |n| "[a]: b\n".repeat(n)),
    ("definitions and uses", |n| (0..n).map(|i| format!("[{i}]: https://a.example\n\n[{i}]\n\n")).collect()),
    ("a long address, used often", |n| format!("[a]: https://a.example/{}\n\n{}", "b".repeat(n.min(4_000)), "[a] ".repeat(n))),
    ("definitions with unclosed titles", |n| "[a]: b\n\"c\n".repeat(n)),
    ("an underline for each definition", |n| "[a]: b\n===\n".repeat(n)),
    ("stars that open", |n| "*a ".repeat(n)),
    ("stars that close", |n| "a* ".repeat(n)),
    ("stars and underscores", |n| "*a_ ".repeat(n)),
    ("both ways", |n| "a**b".repeat(n) + &"c* ".repeat(n)),
    ("marks of all kinds", |n| "*a **a _a __a ~a ~~a ".repeat(n) + &"a~~ a~ a__ a_ a** a* ".repeat(n)),
    ("one long run", |n| "*".repeat(n) + "a" + &"*".repeat(n)),
    ("runs of all lengths", |n| (1..root(n)).map(|i| "*".repeat(i) + "a").collect()),
    ("backticks of all lengths", |n| (1..root(n)).map(|i| "`".repeat(i) + " ").collect()),
    ("backticks of all lengths twice", |n| (0..2).flat_map(|_| (1..root(n)).map(|i| "`".repeat(i) + "a")).collect()),
    ("escaped backticks", |n| "\\``".repeat(n)),
    ("quotes in quotes", |n| ">".repeat(n)),
    ("quotes with lazy lines", |n| ">".repeat(n) + "a\n" + &"a\n".repeat(n)),
    ("quotes in quotes, line by line", |n| (1..root(n)).map(|i| ">".repeat(i) + "a\n").collect()),
    ("lists in lists", |n| "- ".repeat(n) + "a"),
    ("lists in lists, line by line", |n| (1..root(n)).map(|i| "  ".repeat(i) + "- a\n").collect()),
    ("blank lines in deep lists", |n| "- ".repeat(n) + "a\n" + &"\n".repeat(n) + "b"),
    ("rules that are none", |n| "* ".repeat(n) + "a"),
    ("rows", |n| "|a\n|-\n".to_owned() + &"|\\|".repeat(n) + &"\n|b".repeat(n)),
    ("columns", |n| "|a".repeat(n) + "\n" + &"|-".repeat(n) + &"\n|b".repeat(n)),
    ("heads that are none", |n| "|a|b\n|-\n".repeat(n)),
    ("unclosed tags", |n| "<a b=\"<a b='".repeat(n)),
    ("unclosed HTML", |n| "a <!-- <? <!A <![CDATA[ ".repeat(n)),
    ("addresses in addresses", |n| "-http://@".repeat(n)),
    ("references", |n| "&&#1&#x1;&amp".repeat(n)),
];

fn root(n: usize) -> usize {
    n.isqrt() * 2
}

fn work(source: &str) -> usize {
    take_work();
    drop(parse(source));
    take_work()
}

#[test]
fn four_times_the_input_is_four_times_the_work() {
    for (name, shape) in SHAPES {
        let (small, large) = (shape(2_000), shape(8_000));
        let (less, more) = (work(&small), work(&large));
        let grown = large.len() as f64 / small.len() as f64;
        assert!(more as f64 <= less as f64 * grown * 1.2, "{name}: {less} for {}, {more} for {}", small.len(), large.len());
        assert!(more <= large.len() * 80, "{name}: {more} for {}", large.len());
    }
}

#[test]
fn what_hurts_keeps_to_what_is_allowed() {
    for (name, shape) in SHAPES {
        for n in [0, 1, 7, 1_500] {
            let source = shape(n);
            check_allowed(&source, &parse(&source));
            grows_as_a_whole(&source, &[source.len() / 3, source.len() / 2]).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

#[test]
fn an_address_that_is_used_often_is_given_out_within_bounds() {
    let address = "b".repeat(2_000);
    let source = format!("[a]: https://a.example/{address}\n\n{}", "[a] ".repeat(20_000));
    let given = format!("{:?}", parse(&source)).matches(&address).count() * address.len();
    assert!((50_000..=source.len().max(100_000)).contains(&given), "{given}");
}

/// Reads `source` piece by piece up to `ends` and then to its end, and compares with reading it at once.
fn grows_as_a_whole(source: &str, ends: &[usize]) -> Result<(), String> {
    let mut document = Document::default();
    for &end in ends {
        document.update(&source[..source.floor_char_boundary(end)]);
    }
    document.update(source);
    document.finish();
    let whole = parse(source);
    let first = document.blocks().iter().zip(&whole).position(|(grown, whole)| grown != whole);
    match first {
        None if document.blocks().len() == whole.len() => Ok(()),
        first => Err(format!("{first:?} of {} grown and {} whole blocks", document.blocks().len(), whole.len())),
    }
}

#[test]
fn a_document_that_grows_over_the_bound_ends_where_the_whole_one_does() {
    let room = 100;
    for line in [
        "> - a\n>   - *b*\n> [a]: b\n",
        "|a|b|\n|-|-|\n[a]: b|\n",
        "- *a*\n\n  *b* `c`\n",
        "[a]: b\n\n`c` *d* https://a.example\n\n",
    ] {
        let source = line.repeat(50) + "the end";
        let whole: Vec<_> = parse_blocks(&source, room).into_iter().map(|block| block.node).collect();
        assert!(matches!(whole.last(), Some(Node::Element(Element { tag: Tag::Raw, .. }))), "{line:?}");
        assert!(all_text(&whole).ends_with("the end"));
        for cut in 0..source.len() {
            let mut document = Document::with_room(room);
            for end in [cut, cut + 3, cut + 60, source.len()] {
                document.update(&source[..end.min(source.len())]);
            }
            assert_eq!(document.blocks(), whole, "{line:?} at {cut}");
        }
    }
}

/// `web/tests/markdown` holds what models write, and what was written to break things. No difference from the other parser is
/// known for any of it.
#[test]
fn the_corpus_reads_as_it_does_elsewhere_whole_and_in_pieces() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/markdown");
    let mut names = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let source = std::fs::read_to_string(&path).unwrap();
        writeln!(names, "{}", path.display()).unwrap();
        check_allowed(&source, &parse(&source));
        differential::compare(&source).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for cut in (0..source.len()).step_by(1 + source.len() / 200) {
            grows_as_a_whole(&source, &[cut, cut + 9]).unwrap_or_else(|error| panic!("{} at {cut}: {error}", path.display()));
        }
    }
    assert!(names.lines().count() >= 10, "{names}");
}

/// Marks and words, without those that rightly hide a text: targets, definitions, info strings, references.
fn showing() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "> ",
            "- ",
            "1. ",
            "# ",
            "---\n",
            "\n===\n",
            "\n```\n",
            "    ",
            "  ",
            " ",
            "`",
            "``",
            "*",
            "**",
            "_",
            "~~",
            "[",
            "]",
            "![",
            "]]",
            "<",
            ">",
            "\n\n| a | b |\n|---|---|\n| c | d |\n",
            "\\",
            "<b>",
            "<b x=\"",
            "<!--",
            "-->",
            "<div>\n",
            "<pre>",
            "[ ] ",
            "  \n",
            "\\\n",
            "\n",
            "\n\n",
            "https://a.example",
            "<https://b.example>",
            "<a@b.example>",
            "\t",
            "\u{e9}",
            "\r\n",
        ])
        .prop_map(str::to_owned),
        "[a-z]{1,3}",
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// Whether a fence has an info string, of which only the first word is kept.
fn has_info(source: &str) -> bool {
    let opening = |line: &str| line.contains("```") || line.contains("~~~");
    source.lines().any(|line| opening(line) && line.chars().any(char::is_alphanumeric))
}

fn letters(text: &str) -> String {
    text.chars().filter(|c| c.is_alphabetic()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(2_000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_letter_is_lost(source in showing()) {
        if !has_info(&source) {
            prop_assert_eq!(letters(&all_text(&parse(&source))), letters(&source));
        }
    }

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let source = String::from_utf8_lossy(&bytes);
        check_allowed(&source, &parse(&source));
    }

    #[test]
    fn growing_ends_as_the_whole_with_definitions_too(source in hostile(60), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(source.len() + 1)).collect();
        ends.sort_unstable();
        let source = source.replace('(', "]: ");
        prop_assert_eq!(grows_as_a_whole(&source, &ends), Ok(()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(2_000) / 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn large_documents_too(source in hostile(3_000), cut in any::<prop::sample::Index>()) {
        check_allowed(&source, &parse(&source));
        prop_assert_eq!(grows_as_a_whole(&source, &[cut.index(source.len() + 1)]), Ok(()));
        let before = work(&source);
        prop_assert!(before <= source.len() * 80 + 1_000, "{} for {}", before, source.len());
    }
}
