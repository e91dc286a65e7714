//! Names of congestion controls in scenarios.

use std::path::Path;

/// Prefix of a congestion control's name that selects skyhop's implementation even where the kernel has a module of the
/// same name.
pub const SKYHOP_CC_PREFIX: &str = "skyhop:";

/// Largest length of a congestion control's name: the kernel's limit without the final zero (`TCP_CA_NAME_MAX` - 1).
pub const CC_NAME_MAX_LEN: usize = 15;

/// Language of a congestion control in a user's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CcLanguage {
    /// C, which every engine can run.
    C,
    /// Python, which only the simulator can run.
    Python,
    /// Card of a learned policy, which decides in place of an algorithm (`crates/policy`).
    Card,
}

/// Return the name without the prefix `skyhop:`; `None` if it has no prefix, because it may then mean the
/// kernel's own module.
pub fn skyhop_cc_name(name: &str) -> Option<&str> {
    name.strip_prefix(SKYHOP_CC_PREFIX)
}

/// Return the name without the prefix `skyhop:`, if it has one.
pub fn plain_cc_name(name: &str) -> &str {
    skyhop_cc_name(name).unwrap_or(name)
}

/// Language of the file by its extension; `None` if the text is a name and not a file.
pub fn cc_language(name: &str) -> Option<CcLanguage> {
    match Path::new(name).extension()?.to_str()? {
        "c" => Some(CcLanguage::C),
        "py" => Some(CcLanguage::Python),
        "toml" => Some(CcLanguage::Card),
        _ => None,
    }
}

/// Name of the placeholder algorithm that runs in TCP while a card's policy decides.
pub const POLICY_CC: &str = "policy";

/// Name of the table in `[[flow]]` that holds the congestion control's parameters: the name without prefix, the
/// file's name without extension, or [`POLICY_CC`] for all cards.
pub fn cc_table(name: &str) -> &str {
    let plain = plain_cc_name(name);
    if cc_language(plain) == Some(CcLanguage::Card) {
        return POLICY_CC;
    }
    let stem = cc_language(plain).and_then(|_| Path::new(plain).file_stem()?.to_str());
    stem.unwrap_or(plain)
}

/// Value of a flow's `cc` that selects a card shipped with skyhop.
pub fn shipped_card(name: &str) -> String {
    format!("{SKYHOP_CC_PREFIX}{name}.toml")
}

/// Name of the card shipped with skyhop that `cc` selects; `None` if it selects anything else.
pub fn shipped_card_name(cc: &str) -> Option<&str> {
    skyhop_cc_name(cc)?.strip_suffix(".toml")
}

/// Label of a congestion control in results: a file's name without its directories, a shipped card's name.
pub fn cc_label(name: &str) -> &str {
    if let Some(card) = shipped_card_name(name) {
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
            (skyhop_cc_name("skyhop:cubic"), plain_cc_name("skyhop:cubic")),
            (Some("cubic"), "cubic")
        );
        assert_eq!((skyhop_cc_name("cubic"), plain_cc_name("cubic")), (None, "cubic"));
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
            (shipped_card("a-b"), shipped_card_name("a-b.toml")),
            ("skyhop:a-b.toml".to_owned(), None)
        );
    }
}
