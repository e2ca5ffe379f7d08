//! What experiments and measurements share.
//!
//! - [`machine`]: on what a run is made, and with what;
//! - [`process`]: the programs that are started; [`serving`]: our name server, for those who ask it;
//!   [`nsd`]: what Debian's needs to have TLS;
//! - [`steering`]: by what clients are steered; [`traces`]: what is sent; [`question`]: the same by hand;
//! - [`arrivals`]: when it came to who receives; [`errors`]: how far that is from when it was due;
//!   [`disturbed`]: which runs others held up;
//! - [`echo`]: who receives at next to no cost;
//! - [`quantiles`]: how what many runs or queries came to is told; [`limit`]: where it must lie.

pub mod arrivals;
pub mod disturbed;
pub mod echo;
pub mod errors;
pub mod limit;
pub mod machine;
pub mod nsd;
pub mod process;
pub mod quantiles;
pub mod question;
pub mod serving;
pub mod steering;
pub mod traces;
