//! Emphasis, strong emphasis and strikethrough: which runs of `*`, `_` and `~` belong together (CommonMark 0.31, section 6.2, and
//! "process emphasis" of its parsing strategy; GFM 6.5).

use super::{
    inline::{Kind, Piece},
    scan::tally,
    tree::Tag,
};

/// A run of marks that may open or close something.
#[derive(Clone, Copy)]
pub(super) struct Run {
    mark: u8,
    /// The first of its pieces that is not used up (there is one for each mark), and how many are left.
    first: usize,
    left: usize,
    length: usize,
    opens: bool,
    closes: bool,
}

impl Run {
    /// `length` marks between two characters (`None`: the end of the text), or `None` if they are text.
    pub(super) fn new(mark: u8, length: usize, first: usize, before: Option<char>, after: Option<char>) -> Option<Self> {
        let (before, after) = (Side::of(before), Side::of(after));
        // Within a word `*` and `~~` count, `_` and `~` do not.
        let within_word = mark == b'*' || (mark == b'~' && length == 2);
        let opens = after != Side::Space && (before != Side::Word || (within_word && (after == Side::Word || mark == b'~')));
        let closes = before != Side::Space && (after != Side::Word || (within_word && before == Side::Word));
        let known = mark != b'~' || length <= 2;
        ((opens || closes) && known).then_some(Self { mark, first, left: length, length, opens, closes })
    }

    /// Whether this one opens what `closer` closes.
    fn matches(&self, closer: &Self) -> bool {
        let both_ways = self.closes || closer.opens;
        self.mark == closer.mark
            && match self.mark {
                b'~' => self.length == closer.length,
                _ => !both_ways || !(self.length + closer.length).is_multiple_of(3) || closer.length.is_multiple_of(3),
            }
    }

    /// Which openers it is like: where one of a kind found none, another of its kind finds none either.
    fn kind(&self) -> usize {
        let mark = match self.mark {
            b'*' => 0,
            b'_' => 1,
            _ => 2,
        };
        (mark * 2 + usize::from(self.opens)) * 3 + self.length % 3
    }
}

/// What stands beside a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Space,
    Punctuation,
    Word,
}

impl Side {
    fn of(character: Option<char>) -> Self {
        match character {
            None => Self::Space,
            Some(c) if c.is_whitespace() => Self::Space,
            Some(c) if c.is_ascii_punctuation() || (!c.is_alphanumeric() && is_mark(c)) => Self::Punctuation,
            Some(_) => Self::Word,
        }
    }
}

/// Where punctuation and symbols are, beside letters and digits, in the scripts that are written today. Elsewhere what is no letter
/// mostly belongs to one: an accent, a vowel, a tone.
const MARKS: [(char, char); 38] = [
    ('\u{a1}', '\u{ac}'),
    ('\u{ae}', '\u{bf}'),
    ('\u{d7}', '\u{d7}'),
    ('\u{f7}', '\u{f7}'),
    ('\u{2c2}', '\u{2df}'),
    ('\u{37e}', '\u{387}'),
    ('\u{55a}', '\u{55f}'),
    ('\u{589}', '\u{58f}'),
    ('\u{5be}', '\u{5be}'),
    ('\u{5c0}', '\u{5c0}'),
    ('\u{5c3}', '\u{5c3}'),
    ('\u{5f3}', '\u{5f4}'),
    ('\u{606}', '\u{60f}'),
    ('\u{61b}', '\u{61f}'),
    ('\u{66a}', '\u{66d}'),
    ('\u{6d4}', '\u{6d4}'),
    ('\u{964}', '\u{965}'),
    ('\u{9f2}', '\u{9fb}'),
    ('\u{e3f}', '\u{e3f}'),
    ('\u{e4f}', '\u{e4f}'),
    ('\u{e5a}', '\u{e5b}'),
    ('\u{f04}', '\u{f14}'),
    ('\u{104a}', '\u{104f}'),
    ('\u{1360}', '\u{1368}'),
    ('\u{17d4}', '\u{17db}'),
    ('\u{1800}', '\u{180a}'),
    ('\u{2010}', '\u{2027}'),
    ('\u{2030}', '\u{205e}'),
    ('\u{207a}', '\u{208e}'),
    ('\u{20a0}', '\u{20cf}'),
    ('\u{2100}', '\u{2bff}'),
    ('\u{2e00}', '\u{3029}'),
    ('\u{3030}', '\u{303f}'),
    ('\u{309b}', '\u{33ff}'),
    ('\u{fd3e}', '\u{fd3f}'),
    ('\u{fe30}', '\u{fe6f}'),
    ('\u{ff01}', '\u{fffd}'),
    ('\u{1f000}', '\u{1fbff}'),
];

fn is_mark(character: char) -> bool {
    MARKS.iter().any(|(first, last)| (first..=last).contains(&&character))
}

/// Turns pieces into starts and ends of elements, for the runs from `bottom` on, and forgets these runs.
pub(super) fn resolve(pieces: &mut [Piece], runs: &mut Vec<Run>, bottom: usize) {
    let mut openers: Vec<Run> = Vec::new();
    // Below these there is no opener for a closer of the kind.
    let mut bounds = [0; 18];
    for mut run in runs.drain(bottom..) {
        let kind = run.kind();
        while run.closes && run.left > 0 {
            let bound = bounds.get(kind).copied().unwrap_or(0);
            let found = openers.iter().skip(bound).rposition(|opener| opener.matches(&run)).map(|i| bound + i);
            tally(openers.len() - found.unwrap_or(bound.min(openers.len())));
            let Some((found, mut opener)) = found.and_then(|i| Some((i, *openers.get(i)?))) else {
                if let Some(bound) = bounds.get_mut(kind) {
                    *bound = openers.len();
                }
                break;
            };
            let (tag, size) = match run.mark {
                b'~' => (Tag::Strike, run.length),
                _ if run.left >= 2 && opener.left >= 2 => (Tag::Strong, 2),
                _ => (Tag::Emphasis, 1),
            };
            opener.left -= size;
            set(pieces, opener.first + opener.left, size, Kind::Start(tag));
            set(pieces, run.first, size, Kind::End);
            run.first += size;
            run.left -= size;
            // What opened in between is closed by nothing any more.
            openers.truncate(found);
            if opener.left > 0 {
                openers.push(opener);
            }
            bounds.iter_mut().for_each(|bound| *bound = (*bound).min(found));
        }
        if run.opens && run.left > 0 {
            openers.push(run);
        }
    }
}

/// `size` pieces become one.
fn set(pieces: &mut [Piece], first: usize, size: usize, kind: Kind) {
    for piece in pieces.iter_mut().skip(first).take(size) {
        piece.kind = Kind::Nothing;
    }
    if let Some(piece) = pieces.get_mut(first) {
        piece.kind = kind;
    }
}
