//! What only a browser can show: the Markdown tree as elements of a page.
#![cfg(target_arch = "wasm32")]
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use turnfast_web::{
    markdown::{Document, parse},
    ui::Rendered,
};
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};
use web_sys::Element;

wasm_bindgen_test_configure!(run_in_browser);

fn page() -> web_sys::Document {
    web_sys::window().unwrap().document().unwrap()
}

/// An element in the page, so that what would load or run does.
fn host() -> Element {
    let host = page().create_element("div").unwrap();
    page().body().unwrap().append_child(&host).unwrap();
    host
}

fn render(text: &str) -> Element {
    let host = host();
    Rendered::new(host.clone(), page()).show(&parse(text), 0);
    host
}

#[wasm_bindgen_test]
fn ordinary_markdown_shows_as_elements() {
    let host = render("# A\n\n- *one*\n- **two**\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n```rs\nfn x() {}\n```");
    assert_eq!(host.query_selector("h3.h1").unwrap().unwrap().text_content().unwrap(), "A");
    assert_eq!(host.query_selector_all("ul > li").unwrap().length(), 2);
    assert_eq!(host.query_selector("tbody td.end").unwrap().unwrap().text_content().unwrap(), "2");
    assert_eq!(host.query_selector("pre code").unwrap().unwrap().text_content().unwrap(), "fn x() {}\n");
    assert!(host.query_selector("[data-copy]").unwrap().is_some());
}

#[wasm_bindgen_test]
fn nothing_of_a_hostile_reply_comes_alive() {
    let sources = [
        "<script>window.broken = 1</script>",
        "<img src=x onerror=\"window.broken = 1\">",
        "![x](https://evil.example/pixel.png)",
        "[x](javascript:window.broken=1)",
        "[x](java&#10;script:window.broken=1) <a href=javascript:window.broken=1>y</a>",
        "<svg/onload=window.broken=1>\n\n<iframe srcdoc=\"<script>parent.broken=1</script>\"></iframe>",
        "```\"><script>window.broken=1</script>\nx\n```",
        "<style>*{display:none}</style>",
    ];
    for source in sources {
        let host = render(source);
        let alive =
            host.query_selector_all("script, img, iframe, svg, style, object, embed, form, input, link, [style]").unwrap();
        assert_eq!(alive.length(), 0, "{source}");
        let links = host.query_selector_all("a").unwrap();
        for index in 0..links.length() {
            let link: Element = wasm_bindgen::JsCast::unchecked_into(links.item(index).unwrap());
            assert!(link.get_attribute("href").unwrap().starts_with("https://"), "{source}");
            assert_eq!(link.get_attribute("rel").unwrap(), "noopener noreferrer nofollow");
            assert_eq!(link.get_attribute("target").unwrap(), "_blank");
        }
        let attributes = host.query_selector_all("*").unwrap();
        for index in 0..attributes.length() {
            let element: Element = wasm_bindgen::JsCast::unchecked_into(attributes.item(index).unwrap());
            for name in element.get_attribute_names().iter() {
                assert!(!name.as_string().unwrap().starts_with("on"), "{source}");
            }
        }
    }
    assert!(js_sys::Reflect::get(&js_sys::global(), &"broken".into()).unwrap().is_undefined());
}

#[wasm_bindgen_test]
fn a_reply_that_grows_keeps_its_elements_and_ends_as_a_whole_one() {
    let source = "# Title\n\nSome *text* and `code`.\n\n- one\n- two\n  - three\n\n```rust\nfn main() {\n    \
                  println!(\"hi\");\n}\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nAfter https://example.org it ends.";
    let host = host();
    let (mut document, mut rendered) = (Document::default(), Rendered::new(host.clone(), page()));
    let mut heading: Option<web_sys::Node> = None;
    for end in (1..=source.len()).filter(|&end| source.is_char_boundary(end)) {
        if let Some(from) = document.update(&source[..end]) {
            rendered.show(document.blocks(), from);
        }
        if end > 12 {
            let first = host.first_child().unwrap();
            assert!(heading.as_ref().is_none_or(|heading| heading.is_same_node(Some(&first))), "the heading stayed at {end}");
            heading = Some(first);
        }
    }
    assert_eq!(host.inner_html(), render(source).inner_html());
}

#[wasm_bindgen_test]
fn text_that_grows_keeps_its_text_node() {
    let host = host();
    let mut rendered = Rendered::new(host.clone(), page());
    rendered.show(&parse("one two"), 0);
    let text = host.first_child().unwrap().first_child().unwrap();
    rendered.show(&parse("one two three"), 0);
    assert!(host.first_child().unwrap().first_child().unwrap().is_same_node(Some(&text)));
    assert_eq!(text.text_content().unwrap(), "one two three");
    rendered.show(&parse("# other"), 0);
    assert_eq!(host.inner_html(), "<h3 class=\"h1\">other</h3>");
    rendered.show(&[], 0);
    assert_eq!(host.inner_html(), "");
}
