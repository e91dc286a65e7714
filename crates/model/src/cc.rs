//! How a scenario names a congestion control.

use std::path::Path;

/// What stands before the name of one of ours where the kernel's own is not meant.
pub const OUR_CC: &str = "skyhop:";

/// The most letters of a congestion control's name: the kernel has room for so many and their end (`TCP_CA_NAME_MAX`).
pub const MOST_CC_LETTERS: usize = 15;

/// What a congestion control in a file of the user's is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CcLanguage {
    /// For every engine.
    C,
    /// For the simulator.
    Python,
    /// A card: what decides in place of an algorithm (`crates/policy`).
    Card,
}

/// The plain name where ours is meant for certain; `None` where the kernel's own may be meant, too.
pub fn our_cc_name(name: &str) -> Option<&str> {
    name.strip_prefix(OUR_CC)
}

/// The plain name, whichever is meant.
pub fn plain_cc_name(name: &str) -> &str {
    our_cc_name(name).unwrap_or(name)
}

/// What the file is written in, where a file is meant and no name.
pub fn cc_language(name: &str) -> Option<CcLanguage> {
    match Path::new(name).extension()?.to_str()? {
        "c" => Some(CcLanguage::C),
        "py" => Some(CcLanguage::Python),
        "toml" => Some(CcLanguage::Card),
        _ => None,
    }
}

/// The algorithm that stays beside TCP where a card says what is decided.
pub const POLICY_CC: &str = "policy";

/// The table of a flow that holds its congestion control's parameters: the plain name, a file's without its ending, of all
/// cards the same.
pub fn cc_table(name: &str) -> &str {
    let plain = plain_cc_name(name);
    if cc_language(plain) == Some(CcLanguage::Card) {
        return POLICY_CC;
    }
    let stem = cc_language(plain).and_then(|_| Path::new(plain).file_stem()?.to_str());
    stem.unwrap_or(plain)
}

/// What a flow's congestion control is where it has a card that comes with skyhop.
pub fn our_card(name: &str) -> String {
    format!("{OUR_CC}{name}.toml")
}

/// The name of the card that comes with skyhop, where one is meant.
pub fn our_card_name(cc: &str) -> Option<&str> {
    our_cc_name(cc)?.strip_suffix(".toml")
}

/// What results call it: a file without its directories, a card that comes with skyhop by its name.
pub fn cc_label(name: &str) -> &str {
    if let Some(card) = our_card_name(name) {
        return card;
    }
    let file = cc_language(name).and_then(|_| Path::new(name).file_name()?.to_str());
    file.unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_told_from_what_may_be_the_kernels() {
        assert_eq!(
            (our_cc_name("skyhop:cubic"), plain_cc_name("skyhop:cubic")),
            (Some("cubic"), "cubic")
        );
        assert_eq!((our_cc_name("cubic"), plain_cc_name("cubic")), (None, "cubic"));
    }

    #[test]
    fn files_are_told_from_names() {
        let of = |name| (cc_language(name), cc_table(name), cc_label(name));
        assert_eq!(of("../a b/idea.c"), (Some(CcLanguage::C), "idea", "idea.c"));
        assert_eq!(of("idea.py"), (Some(CcLanguage::Python), "idea", "idea.py"));
        assert_eq!(of("cards/a.toml"), (Some(CcLanguage::Card), "policy", "a.toml"));
        assert_eq!(of("cubic"), (None, "cubic", "cubic"));
        assert_eq!(of("skyhop:cubic"), (None, "cubic", "skyhop:cubic"));
        assert_eq!(of(".c"), (None, ".c", ".c"));
        assert_eq!(of("skyhop:a-b.toml"), (Some(CcLanguage::Card), "policy", "a-b"));
        assert_eq!(
            (our_card("a-b"), our_card_name("a-b.toml")),
            ("skyhop:a-b.toml".to_owned(), None)
        );
    }
}
