//! How the table of queue disciplines becomes code.

/// Makes of the table a list of names, an enum over the disciplines, and its constructor.
macro_rules! table {
    ($($variant:ident = $name:literal, $type:ident::$kind:ident, $summary:literal;)+) => {
        /// Every queue discipline there is.
        pub const QDISCS: &[QdiscEntry] =
            &[$(QdiscEntry { name: $name, summary: $summary }),+];

        /// Any of them; an enum rather than a trait object, so that payloads need no bounds.
        #[derive(Debug)]
        pub(crate) enum AnyQdisc<P> {
            $($variant($type::$kind<P>)),+
        }

        impl<P> AnyQdisc<P> {
            /// The discipline called `name`.
            ///
            /// # Errors
            /// There is none of that name.
            pub(crate) fn named(name: &str, limit: Limit) -> Result<Self, LinkError> {
                match name {
                    $($name => Ok(Self::$variant($type::$kind::new(limit))),)+
                    _ => Err(LinkError::UnknownQdisc {
                        name: name.to_owned(),
                        known: QDISCS.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
                    }),
                }
            }
        }

        impl<P> Qdisc<P> for AnyQdisc<P> {
            #[inline]
            fn enqueue(&mut self, arriving: Queued<P>, drops: &mut DropLog<P>) {
                match self { $(Self::$variant(qdisc) => qdisc.enqueue(arriving, drops)),+ }
            }

            #[inline]
            fn dequeue(&mut self, now: Instant, drops: &mut DropLog<P>) -> Option<Queued<P>> {
                match self { $(Self::$variant(qdisc) => qdisc.dequeue(now, drops)),+ }
            }

            #[inline]
            fn backlog(&self) -> Backlog {
                match self { $(Self::$variant(qdisc) => qdisc.backlog()),+ }
            }
        }
    };
}
