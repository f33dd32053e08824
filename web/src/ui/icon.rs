//! The few drawings of the page. All are decoration: what they stand for is said by the label of what holds them.

use super::{
    app::Draft,
    node::{Fixed, element},
};

const LINES: Fixed = &[
    ("viewBox", "0 0 20 20"),
    ("width", "20"),
    ("height", "20"),
    ("fill", "none"),
    ("stroke", "currentColor"),
    ("stroke-width", "1.6"),
    ("stroke-linecap", "round"),
    ("stroke-linejoin", "round"),
    ("aria-hidden", "true"),
    ("focusable", "false"),
];

fn icon(path: Fixed) -> Draft {
    element("svg", LINES).with(element("path", path))
}

pub(super) fn menu() -> Draft {
    icon(&[("d", "M3 5.5h14M3 10h14M3 14.5h9")])
}

pub(super) fn plus() -> Draft {
    icon(&[("d", "M10 4v12M4 10h12")])
}

pub(super) fn pen() -> Draft {
    icon(&[("d", "M13.2 3.8l3 3L7 16l-3.7.7L4 13z")])
}

pub(super) fn bin() -> Draft {
    icon(&[("d", "M4 5.5h12M8 5.5V3.8h4v1.7M5.5 5.5l.7 11h7.6l.7-11M8.5 8.5v5M11.5 8.5v5")])
}

pub(super) fn close() -> Draft {
    icon(&[("d", "M5 5l10 10M15 5L5 15")])
}

pub(super) fn send() -> Draft {
    icon(&[("d", "M10 16V4.5M5 9l5-5 5 5")])
}

pub(super) fn stop() -> Draft {
    icon(&[("d", "M6 6h8v8H6z")])
}

pub(super) fn clip() -> Draft {
    icon(&[(
        "d",
        "M15.5 9.2l-5.9 5.9a3.6 3.6 0 0 1-5.1-5.1l6.4-6.4a2.4 2.4 0 0 1 3.4 3.4l-6.2 6.2a1.2 1.2 0 0 1-1.7-1.7l5.6-5.6",
    )])
}

pub(super) fn down() -> Draft {
    icon(&[("d", "M10 4v11.5M5 11l5 5 5-5")])
}

/// The mark of Turnfast: a turn that closes.
pub(super) fn mark() -> Draft {
    let frame = element(
        "svg",
        &[
            ("class", "mark"),
            ("viewBox", "0 0 24 24"),
            ("width", "24"),
            ("height", "24"),
            ("fill", "none"),
            ("stroke", "currentColor"),
            ("stroke-width", "2.4"),
            ("stroke-linecap", "round"),
            ("stroke-linejoin", "round"),
            ("aria-hidden", "true"),
            ("focusable", "false"),
        ],
    );
    frame
        .with(element("path", &[("d", "M19.5 12a7.5 7.5 0 1 1-2.6-5.7")]))
        .with(element("path", &[("d", "M8.8 12.2l2.4 2.4 7.3-8.3")]))
}
