//! Ends of a path, directions between them, and the name of the link that a path is.

/// The name of the link that `[path]` and `[link]` describe.
pub const PATH_LINK: &str = "path";

words! {
    /// A direction of a path or link.
    #[derive(Default)]
    Direction ["direction"] {
        /// from -> to.
        #[default]
        Forward = "forward",
        /// to -> from.
        Back = "back",
    }
}

impl Direction {
    /// Its place where both directions stand beside each other: 0 for forward.
    pub const fn index(self) -> usize {
        self as usize
    }
}

words! {
    /// An end of a path.
    #[derive(Default)]
    End ["end of the path"] {
        /// The path's `from`, node -1.
        #[default]
        From = "from",
        /// The path's `to`, node -2.
        To = "to",
    }
}

impl End {
    /// The end across the path.
    pub const fn other(self) -> Self {
        match self {
            Self::From => Self::To,
            Self::To => Self::From,
        }
    }
}
