/// Error in a policy's card or network: one line, without the file's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The card is not valid TOML, or a key or value is wrong.
    #[error("{what}")]
    Card {
        /// The key, what is wrong with it, and what was expected.
        what: String,
    },
    /// The network is not valid ONNX, has an unknown operator, or other inputs and outputs than the card.
    #[error("{what}")]
    Network {
        /// The fault, as the rest of a sentence about the network.
        what: String,
    },
}

impl PolicyError {
    pub(crate) fn card(what: impl Into<String>) -> Self {
        Self::Card { what: what.into() }
    }

    pub(crate) fn network(what: impl Into<String>) -> Self {
        Self::Network { what: what.into() }
    }
}
