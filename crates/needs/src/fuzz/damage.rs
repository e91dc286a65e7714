//! What is done to whole files: the damage that disks, editors, other programs and other versions do, and worse.

use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::select;

/// Numbers and words that readers meet where they expect others.
const VALUES: [&str; 44] = [
    "",
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "0.5",
    "1e400",
    "-1e400",
    "1e308",
    "1e-400",
    "1e18",
    "4e9",
    "nan",
    "NaN",
    "-nan",
    "inf",
    "-inf",
    "Infinity",
    "127",
    "128",
    "255",
    "256",
    "32768",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999999999999",
    "0x10",
    "1_000",
    "+5",
    "1,5",
    "٣",
    "true",
    "null",
    "\"\"",
];

/// What does not belong into a text.
const RUDE: [&[u8]; 26] = [
    b"\xff",
    b"\xc3",
    b"\0",
    b"\r",
    b"\r\n",
    b"\n",
    b"\n\n",
    b"\t",
    b"\x1b[2J",
    b"\x7f",
    b"\xc2\x9b",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xae",
    b"\xe2\x80\xa8",
    b"\"",
    b"'",
    b"\\",
    b"\"\"\"",
    b",",
    b"=",
    b"#",
    b"<",
    b">",
    b"&",
    b"\\u001b",
    b"\\n",
];

/// What opens something, and may do so any number of times.
const OPENERS: [&str; 9] = ["[", "{", "(", "<a>", "{\"a\":", "[[", "a.", "\"", "-"];
const TIMES: [usize; 4] = [2, 30, 300, 40_000];

/// Sizes and counts that make readers' sums run over.
const LENGTHS: [u64; 14] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];

/// One of however many there are.
#[derive(Debug, Clone, Copy)]
struct Place(u32);

impl Place {
    fn index(self, count: usize) -> usize {
        ((u64::from(self.0) * count as u64) >> 32) as usize
    }
}

fn place() -> impl Strategy<Value = Place> {
    any::<u32>().prop_map(Place)
}

/// Of which kind a format is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Bytes,
}

/// The damage to one file.
#[derive(Debug, Clone)]
pub(super) struct Damage {
    kind: Kind,
    sample: Place,
    changes: Vec<Change>,
}

/// One change: what is done, and where.
#[derive(Debug, Clone, Copy)]
struct Change {
    what: What,
    place: Place,
    other: Place,
    value: Place,
}

#[derive(Debug, Clone, Copy)]
enum What {
    // Of texts.
    Value,
    Borrow,
    Digits,
    DropToken,
    RepeatToken,
    SwapTokens,
    DropLine,
    RepeatLine,
    SwapLines,
    Rude,
    Nest,
    Long,
    // Of both.
    Byte,
    Bit,
    Cut,
    // Of bytes.
    Length,
    DropPiece,
    RepeatPiece,
    SwapPieces,
    Zeros,
    Splice,
}

/// By how often they happen.
const OF_TEXT: [What; 24] = [
    What::Value,
    What::Value,
    What::Value,
    What::Value,
    What::Value,
    What::Value,
    What::Borrow,
    What::Borrow,
    What::Borrow,
    What::Digits,
    What::Digits,
    What::DropToken,
    What::DropToken,
    What::RepeatToken,
    What::SwapTokens,
    What::SwapTokens,
    What::DropLine,
    What::RepeatLine,
    What::SwapLines,
    What::Rude,
    What::Rude,
    What::Byte,
    What::Cut,
    What::Nest,
];
const OF_BYTES: [What; 14] = [
    What::Byte,
    What::Byte,
    What::Bit,
    What::Bit,
    What::Bit,
    What::Length,
    What::Length,
    What::Length,
    What::Cut,
    What::DropPiece,
    What::RepeatPiece,
    What::SwapPieces,
    What::Zeros,
    What::Splice,
];

impl Damage {
    /// Up to `most` changes of one of the samples; smaller ones are smaller damage.
    pub fn strategy(kind: Kind, most: usize) -> impl Strategy<Value = Self> {
        let what = match kind {
            Kind::Text => select([&OF_TEXT[..], &OF_TEXT, &[What::Long]].concat()),
            Kind::Bytes => select(OF_BYTES.to_vec()),
        };
        let change = (what, place(), place(), place())
            .prop_map(|(what, place, other, value)| Change { what, place, other, value });
        (place(), vec(change, 1..=most)).prop_map(move |(sample, changes)| Self {
            kind,
            sample,
            changes,
        })
    }

    /// The damaged file.
    pub fn of(&self, samples: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = samples[self.sample.index(samples.len())].clone();
        for change in &self.changes {
            if bytes.is_empty() {
                break;
            }
            match self.kind {
                Kind::Text => change.of_text(&mut bytes, samples),
                Kind::Bytes => change.of_bytes(&mut bytes, samples),
            }
        }
        bytes
    }
}

impl Change {
    fn of_text(self, bytes: &mut Vec<u8>, samples: &[Vec<u8>]) {
        match self.what {
            What::Value | What::Borrow | What::Digits | What::DropToken | What::RepeatToken => {
                let words = words(bytes);
                let Some(word) = self.one_of(&words) else { return };
                let text = bytes[word.clone()].to_vec();
                bytes.splice(word, self.in_place_of(&text, samples));
            }
            What::SwapTokens => swap(bytes, &words(bytes), self),
            What::DropLine | What::RepeatLine => {
                let line = self.one_of(&lines(bytes)).unwrap_or(0..0);
                let times = if matches!(self.what, What::DropLine) { 0 } else { 2 };
                let text = bytes[line.clone()].repeat(times);
                bytes.splice(line, text);
            }
            What::SwapLines => swap(bytes, &lines(bytes), self),
            What::Rude => self.insert(bytes, RUDE[self.value.index(RUDE.len())]),
            What::Nest => {
                let opener = OPENERS[self.value.index(OPENERS.len())];
                self.insert(bytes, opener.repeat(TIMES[self.other.index(TIMES.len())]).as_bytes());
            }
            What::Long => {
                let letter = ["x", "7", " ", "é"][self.value.index(4)];
                self.insert(
                    bytes,
                    letter.repeat([300, 20_000, 120_000][self.other.index(3)]).as_bytes(),
                );
            }
            _ => self.of_bytes(bytes, samples),
        }
    }

    /// What comes in place of a number or a word.
    fn in_place_of(self, text: &[u8], samples: &[Vec<u8>]) -> Vec<u8> {
        match self.what {
            What::Value => VALUES[self.value.index(VALUES.len())].as_bytes().to_vec(),
            What::Borrow => {
                let sample = &samples[self.other.index(samples.len())];
                let words = words(sample);
                let word = words.get(self.value.index(words.len().max(1)));
                word.map_or_else(Vec::new, |word| sample[word.clone()].to_vec())
            }
            What::Digits => {
                let digits = [
                    [b"-", text].concat(),
                    [text, b"0"].concat(),
                    [text, b"e9"].concat(),
                    [text, b"e-9"].concat(),
                    [text, b".5"].concat(),
                    [text, text].concat(),
                    text[..text.len() / 2].to_vec(),
                ];
                digits[self.value.index(digits.len())].clone()
            }
            What::RepeatToken => [text, b" ", text].concat(),
            _ => Vec::new(),
        }
    }

    fn of_bytes(self, bytes: &mut Vec<u8>, samples: &[Vec<u8>]) {
        let place = self.place.index(bytes.len());
        let piece = self.piece(bytes.len());
        match self.what {
            What::Byte => bytes[place] = self.value.index(256) as u8,
            What::Bit => bytes[place] ^= 1 << self.value.index(8),
            What::Cut => bytes.truncate(place),
            What::Length => {
                let width = [1, 2, 4, 8][self.other.index(4)];
                let value = LENGTHS[self.value.index(LENGTHS.len())];
                let (little, big) = (value.to_le_bytes(), value.to_be_bytes());
                let ends = [&little[..width], &big[8 - width..]];
                let number = ends[self.value.index(2 * LENGTHS.len()) % 2];
                bytes.iter_mut().skip(place).zip(number).for_each(|(byte, new)| *byte = *new);
            }
            What::DropPiece => drop(bytes.drain(piece)),
            What::RepeatPiece => {
                let twice = bytes[piece.clone()].repeat(2);
                bytes.splice(piece, twice);
            }
            What::SwapPieces => {
                let text = bytes.drain(piece).collect::<Vec<u8>>();
                let place = place.min(bytes.len());
                bytes.splice(place..place, text);
            }
            What::Zeros => bytes[piece].fill(0),
            What::Splice => {
                let sample = &samples[self.other.index(samples.len())];
                let other = sample[self.piece(sample.len())].to_vec();
                bytes.splice(piece, other);
            }
            _ => {}
        }
    }

    fn insert(self, bytes: &mut Vec<u8>, new: &[u8]) {
        let place = self.place.index(bytes.len() + 1);
        bytes.splice(place..place, new.iter().copied());
    }

    fn one_of(self, parts: &[Range<usize>]) -> Option<Range<usize>> {
        (!parts.is_empty()).then(|| parts[self.place.index(parts.len())].clone())
    }

    /// Some bytes on from the place.
    fn piece(self, length: usize) -> Range<usize> {
        if length == 0 {
            return 0..0;
        }
        let begin = self.place.index(length);
        begin..length.min(begin + 1 + self.value.index(64))
    }
}

/// Two of the parts change places.
fn swap(bytes: &mut Vec<u8>, parts: &[Range<usize>], change: Change) {
    if parts.is_empty() {
        return;
    }
    let (one, two) = (change.place.index(parts.len()), change.other.index(parts.len()));
    let (first, second) = (parts[one.min(two)].clone(), parts[one.max(two)].clone());
    if first.end > second.start {
        return;
    }
    let between = first.end..second.start;
    let swapped = [&bytes[second.clone()], &bytes[between], &bytes[first.clone()]].concat();
    bytes.splice(first.start..second.end, swapped);
}

/// Where numbers and words stand: "-1.5e3", "icmp_seq", "Mbit".
fn words(bytes: &[u8]) -> Vec<Range<usize>> {
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let begin = at;
        let signed = matches!(bytes[at], b'-' | b'+' | b'.') && is_digit(at + 1);
        if signed || is_digit(at) {
            at += 1;
            while at < bytes.len() && matches!(bytes[at], b'0'..=b'9' | b'.' | b'e' | b'E') {
                let exponent = matches!(bytes[at], b'e' | b'E');
                let sign = matches!(bytes.get(at + 1), Some(b'-' | b'+'));
                if exponent && !is_digit(at + 1 + usize::from(sign)) {
                    break;
                }
                at += if exponent && sign { 2 } else { 1 };
            }
        } else {
            while at < bytes.len()
                && (bytes[at].is_ascii_alphabetic() || matches!(bytes[at], b'_' | 0x80..))
            {
                at += 1;
            }
        }
        if at > begin {
            found.push(begin..at);
        } else {
            at += 1;
        }
    }
    found
}

/// Where lines stand, with their ends.
fn lines(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut begin = 0;
    let line = |line: &[u8]| {
        begin += line.len();
        begin - line.len()..begin
    };
    bytes.split_inclusive(|byte| *byte == b'\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words_are_told_apart() {
        let text = b"rtt=-1.5e-3 ms, a_b 7;3e";
        let seen: Vec<&[u8]> = words(text).into_iter().map(|word| &text[word]).collect();
        assert_eq!(seen, [&b"rtt"[..], b"-1.5e-3", b"ms", b"a_b", b"7", b"3", b"e"]);
        assert_eq!(lines(b"ab\n\nc"), [0..3, 3..4, 4..5]);
    }

    #[test]
    fn parts_change_places() {
        let mut bytes = b"one two three".to_vec();
        let parts = words(&bytes);
        let (first, last) = (Place(0), Place(u32::MAX));
        let change = Change { what: What::SwapTokens, place: first, other: last, value: first };
        swap(&mut bytes, &parts, change);
        assert_eq!(bytes, b"three two one");
    }
}
