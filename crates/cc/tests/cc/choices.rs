//! Parameters whose value is one of several names.

use skyhop_cc::Param;

#[test]
fn a_choice_is_made_by_its_name() {
    let mode = Param {
        name: "mode",
        unit: "published|freeze",
        about: "which text to follow",
        scale: 1,
        initial: 0,
        least: 0,
        most: 1,
    };
    assert_eq!(mode.parse("satcp", "published"), Ok(0));
    assert_eq!(mode.parse("satcp", "freeze"), Ok(1));
    assert_eq!(mode.text_of(1), "freeze");
    let message = mode.parse("satcp", "1").unwrap_err().to_string();
    assert_eq!(message, "satcp.mode = \"1\": expected one of published, freeze");
}
