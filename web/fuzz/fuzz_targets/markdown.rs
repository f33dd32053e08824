//! Whatever a model writes, only what is safe to show comes out of it, within bounds, and the same whole and in pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnfast_web::markdown::{Document, MAX_DEPTH, MAX_NODES, Node, SafeUrl, Tag, parse};

/// Checks a tree and counts its nodes.
fn check(nodes: &[Node], depth: usize) -> usize {
    // A text may stand in an innermost element.
    assert!(depth <= MAX_DEPTH + 1, "{depth} levels");
    let mut count = 0;
    for node in nodes {
        count += 1;
        let Node::Element(element) = node else { continue };
        if let Tag::Link(url) = &element.tag {
            let address = url.as_str();
            assert!(["http://", "https://", "mailto:"].iter().any(|scheme| address.starts_with(scheme)), "{address}");
            assert_eq!(SafeUrl::parse(address).as_ref(), Some(url), "an address that is safe stays so");
        }
        count += check(&element.children, depth + 1);
    }
    count
}

fuzz_target!(|bytes: &[u8]| {
    let (cuts, bytes) = bytes.split_at(bytes.len().min(4));
    let source = String::from_utf8_lossy(bytes);
    let whole = parse(&source);
    // Some nodes may come after the one that reaches the bound: the rest as text, and text within open elements.
    assert!(check(&whole, 1) <= MAX_NODES + 16);

    let mut document = Document::default();
    let mut ends: Vec<usize> = cuts.iter().map(|cut| source.len() * usize::from(*cut) / 256).collect();
    ends.sort_unstable();
    for end in ends.into_iter().filter(|end| source.is_char_boundary(*end)) {
        document.update(&source[..end]);
    }
    document.update(&source);
    document.finish();
    assert_eq!(document.blocks(), whole, "in pieces it ends as the whole");
});
