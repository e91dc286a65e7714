//! How a scenario names a congestion control.

/// What stands before the name of one of ours where the kernel's own is not meant.
pub const OUR_CC: &str = "skyhop:";

/// The plain name where ours is meant for certain; `None` where the kernel's own may be meant, too.
pub fn our_cc_name(name: &str) -> Option<&str> {
    name.strip_prefix(OUR_CC)
}

/// The plain name, whichever is meant.
pub fn plain_cc_name(name: &str) -> &str {
    our_cc_name(name).unwrap_or(name)
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
}
