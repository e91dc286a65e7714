//! Names of applications' result tables and of players' compatibility modes.

words! {
    /// Tables of applications' results, named after what a row is about.
    AppTable ["table of results"] {
        /// Requests, one row per request and its answer.
        Requests = "requests",
        /// Bursts: one row per period of sending between two pauses.
        Bursts = "bursts",
        /// Messages of a steady source, one row per message.
        Messages = "messages",
        /// Web pages, one row per load of a page.
        Pages = "pages",
        /// Objects of web pages, one row per object.
        Objects = "objects",
        /// Calls: one row per direction and window of time.
        Calls = "calls",
        /// Chunks of a film, one row per chunk.
        Chunks = "chunks",
    }
}

words! {
    /// Video player whose rules skyhop's player follows where they differ from its own.
    #[derive(Default)]
    PlayerCompat ["compatibility mode"] {
        /// None: skyhop's own player.
        #[default]
        None = "none",
        /// Player of Pensieve's simulator.
        Pensieve = "pensieve",
    }
}
