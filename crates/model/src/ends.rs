//! Ends of a path, directions between them, and the name of a path's link.

/// Name of the link that `[path]` and `[link]` describe.
pub const PATH_LINK: &str = "path";

words! {
    /// Direction of packets on a path or link.
    #[derive(Default)]
    Direction ["direction"] {
        /// Direction from the end `from` to the end `to`.
        #[default]
        Forward = "forward",
        /// Direction from the end `to` to the end `from`.
        Back = "back",
    }
}

impl Direction {
    /// Index in arrays of both directions: 0 for forward, 1 for back.
    pub const fn index(self) -> usize {
        self as usize
    }
}

words! {
    /// One of the two ends of a path.
    #[derive(Default)]
    End ["end of the path"] {
        /// End `from` of the path, node -1.
        #[default]
        From = "from",
        /// End `to` of the path, node -2.
        To = "to",
    }
}

impl End {
    /// Opposite end of the path.
    pub const fn other(self) -> Self {
        match self {
            Self::From => Self::To,
            Self::To => Self::From,
        }
    }
}
