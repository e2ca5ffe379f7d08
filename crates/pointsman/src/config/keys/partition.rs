//! The partitions that are imported.

use super::{Default, Key, Section};
use crate::config::kind::Kind;
use crate::config::spec::PartitionSpec;

/// A partition to import; there may be several.
pub(crate) const PARTITION: Section<PartitionSpec> = Section {
    name: "partition",
    about: "A source of a partition: one of csv, mmdb, mrt and ask; the heading may be repeated. Where several have one name, \
        they are stacked: what the first has no region for, the next one decides. Read as zone is.",
    keys: &[
        Key {
            name: "name",
            flag: None,
            kind: Kind::Name(|s| &mut s.name, "the name of a partition"),
            default: Default::Value("\"default\""),
            about: "The partition's name.",
            consequence: "Policies use the partition default unless they name another.",
        },
        Key {
            name: "csv",
            flag: None,
            kind: Kind::Path(|s| &mut s.csv),
            default: Default::Absent { means: "mmdb or mrt is given", example: "\"partition.csv\"" },
            about: "A file of lines `prefix,region`.",
            consequence: "Regions that do not exist yet are added. Addresses that no prefix has are in region 0. \
                A file without a prefix is refused.",
        },
        Key {
            name: "mmdb",
            flag: None,
            kind: Kind::Path(|s| &mut s.mmdb),
            default: Default::Absent { means: "csv or mrt is given", example: "\"GeoLite2-Country.mmdb\"" },
            about: "A MaxMind database.",
            consequence: "It is flattened when it is read: queries never look into it.",
        },
        Key {
            name: "regions",
            flag: None,
            kind: Kind::Path(|s| &mut s.regions),
            default: Default::Absent { means: "csv or mrt is given", example: "\"regions.csv\"" },
            about: "A file of lines `code,region` that says which region a code of mmdb is in.",
            consequence: "Codes that it does not have are in region 0. The numbers of the regions are written beside it, \
                to the same name with .ids at its end.",
        },
        Key {
            name: "field",
            flag: None,
            kind: Kind::Choice(|s| &mut s.field, &["country", "continent", "asn"]),
            default: Default::Absent { means: "country, where mmdb is given", example: "\"country\"" },
            about: "What of mmdb is the code.",
            consequence: "country: ISO 3166-1 such as DE; continent: such as EU; asn: a number such as 64496.",
        },
        Key {
            name: "mrt",
            flag: None,
            kind: Kind::Path(|s| &mut s.mrt),
            default: Default::Absent { means: "csv or mmdb is given", example: "\"bview.gz\"" },
            about: "A BGP table in MRT (TABLE_DUMP or TABLE_DUMP_V2), as it is or packed with gzip or bzip2.",
            consequence: "Clients whose AS sees the servers in the same order, by AS hops, are one region, and the \
                partition ranks the servers for it: for policies with `\"order\": \"nearest\"`.",
        },
        Key {
            name: "servers",
            flag: None,
            kind: Kind::Servers(|s| &mut s.servers),
            default: Default::Absent {
                means: "csv or mmdb is given",
                example: "[\"192.0.2.1\", \"198.51.100.1=AS64496\"]",
            },
            about: "The servers whose distance to each AS of mrt decides.",
            consequence: "A server's AS is looked up in the table where it is not given.",
        },
        Key {
            name: "relations",
            flag: None,
            kind: Kind::Path(|s| &mut s.relations),
            default: Default::Absent { means: "any links may follow one another", example: "\"as-rel.txt\"" },
            about: "A file of lines `provider|customer|-1` and `peer|peer|0`.",
            consequence: "Then only paths without a valley count, as traffic takes them; the status tells how often that \
                makes a difference.",
        },
        Key {
            name: "ask",
            flag: None,
            kind: Kind::Boolean(|s| &mut s.ask),
            default: Default::Absent { means: "the partition has a file", example: "true" },
            about: "Whether all clients that the layers before do not know are left to the service of external.",
            consequence: "It is the last layer of its partition. In a file of lines, `?` instead of a region leaves single \
                prefixes to it.",
        },
    ],
};
