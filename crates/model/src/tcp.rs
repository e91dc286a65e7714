//! What Linux says of a TCP sender.

words! {
    /// Linux's congestion state of a TCP sender: `enum tcp_ca_state`.
    #[derive(Default)]
    #[repr(u8)]
    CongestionState ["congestion state"] {
        /// Nothing unusual.
        #[default]
        Open = "open",
        /// Duplicate acknowledgements, nothing known lost.
        Disorder = "disorder",
        /// The window is being reduced without loss.
        Cwr = "cwr",
        /// Fast recovery.
        Recovery = "recovery",
        /// After a retransmission timeout.
        Loss = "loss",
    }
}

impl CongestionState {
    /// The state behind `icsk_ca_state` or `tcpi_ca_state`.
    pub fn from_linux(value: u8) -> Self {
        Self::ALL.get(usize::from(value)).copied().unwrap_or(Self::Loss)
    }
}
