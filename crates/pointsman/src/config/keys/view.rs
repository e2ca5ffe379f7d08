//! Which zones are answered from at which addresses.

use super::{Default, Key, Section};
use crate::config::kind::Kind;
use crate::config::spec::ViewSpec;

/// Which zones are answered from at which addresses; there may be several.
pub(crate) const VIEW: Section<ViewSpec> = Section {
    name: "view",
    about: "Which zones are answered from at which of our addresses; the heading may be repeated. Without it all zones are \
        answered from at each address. Where there is one, an address that no heading has answers from the zones that no \
        heading names: so it refuses everything where all are named. docs/concepts/views.md (of the package: \
        /usr/share/doc/pointsman) says what it is good for. At most 4096 views, and of addresses and of zones 65536 in all.",
    keys: &[
        Key {
            name: "addresses",
            flag: None,
            kind: Kind::Ips(|s| &mut s.addresses),
            default: Default::Required("[\"192.0.2.53\", \"2001:db8::53\"]"),
            about: "The addresses that queries are sent to.",
            consequence: "Each is in one view. `listen` must have them too, or all addresses (0.0.0.0, [::]).",
        },
        Key {
            name: "zones",
            flag: None,
            kind: Kind::Zones(|s| &mut s.zones),
            default: Default::Required("[\"example.com\", \"example.net\"]"),
            about: "The zones that such queries are answered from, and no others; transfers too.",
            consequence: "A zone may be in several views. One that is not there is named in the log, and answered from once \
                it is put. The API, `explain` and policies go by all zones.",
        },
    ],
};
