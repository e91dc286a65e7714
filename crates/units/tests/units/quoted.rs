//! Tests of the quotation of input in messages.

use skyhop_units::Quoted;

#[test]
fn control_characters_are_escaped() {
    assert_eq!(Quoted("Zürich").to_string(), "\"Zürich\"");
    assert_eq!(Quoted("a\n\x1b[2J\u{9b}").to_string(), "\"a\\n\\x1b[2J\\x9b\"");
    assert_eq!(Quoted("a\u{202e}b\u{2028}").to_string(), "\"a\\u{202e}b\\u{2028}\"");
    assert_eq!(Quoted(&"é".repeat(200)).to_string().chars().count(), 80 + 3);
}
