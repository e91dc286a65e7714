//! Explicit congestion notification in the IP header (RFC 3168 5).

words! {
    /// The two ECN bits of an IP packet, in the order of their values.
    #[derive(Default)]
    #[repr(u8)]
    Ecn ["ECN codepoint"] {
        /// Its ends do not speak ECN: a queue can only drop it.
        #[default]
        NotEct = "not-ect",
        /// They do; L4S (RFC 9331).
        Ect1 = "ect1",
        /// They do.
        Ect0 = "ect0",
        /// A queue marked it: congestion experienced.
        Ce = "ce",
    }
}

impl Ecn {
    /// The codepoint in the low two bits of `byte`: the IPv4 TOS or the IPv6 traffic class.
    pub const fn from_tos(byte: u8) -> Self {
        match byte & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two bits.
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// Whether a queue may mark the packet rather than drop it; one that is marked already stays so.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotEct)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_those_of_rfc_3168() {
        for tos in 0..=u8::MAX {
            assert_eq!(Ecn::from_tos(tos).bits(), tos & 3);
        }
        assert_eq!((Ecn::Ect0.bits(), Ecn::Ce.bits()), (2, 3));
        assert!(!Ecn::NotEct.is_capable() && Ecn::Ce.is_capable());
    }
}
