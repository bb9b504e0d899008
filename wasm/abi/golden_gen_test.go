// Code generated from schema/kvferry1.schema by gen; DO NOT EDIT.

package abi

// goldens are the values whose bytes lie in testdata.
var goldens = map[string]any{
	"select_layout_in": &SelectLayoutIn{
		Engine:     "text 1",
		Model:      "text 2",
		Role:       3,
		Layers:     4,
		TP:         5,
		Stages:     6,
		DCP:        7,
		Interleave: 8,
		Previous:   9,
		Recorded:   10,
		Groups: []Group{
			{
				Name:     "text 12",
				State:    13,
				Optional: 14,
				Window:   15,
				Layers: []Range{
					{
						From: 17,
						To:   18,
					},
					{
						From: 19,
						To:   20,
					},
				},
				Components: []Component{
					{
						Name:           "text 22",
						Heads:          23,
						Dim:            24,
						Dtype:          25,
						Bits:           26,
						Unit:           27,
						TokensPerEntry: 28,
						Scales:         29,
					},
					{
						Name:           "text 30",
						Heads:          31,
						Dim:            32,
						Dtype:          33,
						Bits:           34,
						Unit:           35,
						TokensPerEntry: 36,
						Scales:         37,
					},
				},
				Shared: []Share{
					{
						Layer: 39,
						Owner: 40,
					},
					{
						Layer: 41,
						Owner: 42,
					},
				},
			},
			{
				Name:     "text 43",
				State:    44,
				Optional: 45,
				Window:   46,
				Layers: []Range{
					{
						From: 48,
						To:   49,
					},
					{
						From: 50,
						To:   51,
					},
				},
				Components: []Component{
					{
						Name:           "text 53",
						Heads:          54,
						Dim:            55,
						Dtype:          56,
						Bits:           57,
						Unit:           58,
						TokensPerEntry: 59,
						Scales:         60,
					},
					{
						Name:           "text 61",
						Heads:          62,
						Dim:            63,
						Dtype:          64,
						Bits:           65,
						Unit:           66,
						TokensPerEntry: 67,
						Scales:         68,
					},
				},
				Shared: []Share{
					{
						Layer: 70,
						Owner: 71,
					},
					{
						Layer: 72,
						Owner: 73,
					},
				},
			},
		},
		Candidates: []Candidate{
			{
				Name: "text 75",
				Layouts: []GroupLayout{
					{
						Order: []Item{
							{
								Components: 335007449088,
								Axis:       79,
								Mod:        80,
								Div:        81,
							},
							{
								Components: 352187318272,
								Axis:       83,
								Mod:        84,
								Div:        85,
							},
						},
						Group:       86,
						Block:       87,
						Blocks:      88,
						Ring:        89,
						KernelBlock: 90,
						TP:          91,
						Stages:      92,
						DCP:         93,
						Interleave:  94,
					},
					{
						Order: []Item{
							{
								Components: 412316860416,
								Axis:       97,
								Mod:        98,
								Div:        99,
							},
							{
								Components: 429496729600,
								Axis:       101,
								Mod:        102,
								Div:        103,
							},
						},
						Group:       104,
						Block:       105,
						Blocks:      106,
						Ring:        107,
						KernelBlock: 108,
						TP:          109,
						Stages:      110,
						DCP:         111,
						Interleave:  112,
					},
				},
				Attention: 113,
				Costs: []Cost{
					{
						Peer:      115,
						Candidate: 116,
						Pieces:    502511173632,
						Bytes:     506806140928,
					},
					{
						Peer:      119,
						Candidate: 120,
						Pieces:    519691042816,
						Bytes:     523986010112,
					},
				},
			},
			{
				Name: "text 123",
				Layouts: []GroupLayout{
					{
						Order: []Item{
							{
								Components: 541165879296,
								Axis:       127,
								Mod:        128,
								Div:        129,
							},
							{
								Components: 558345748480,
								Axis:       131,
								Mod:        132,
								Div:        133,
							},
						},
						Group:       134,
						Block:       135,
						Blocks:      136,
						Ring:        137,
						KernelBlock: 138,
						TP:          139,
						Stages:      140,
						DCP:         141,
						Interleave:  142,
					},
					{
						Order: []Item{
							{
								Components: 618475290624,
								Axis:       145,
								Mod:        146,
								Div:        147,
							},
							{
								Components: 635655159808,
								Axis:       149,
								Mod:        150,
								Div:        151,
							},
						},
						Group:       152,
						Block:       153,
						Blocks:      154,
						Ring:        155,
						KernelBlock: 156,
						TP:          157,
						Stages:      158,
						DCP:         159,
						Interleave:  160,
					},
				},
				Attention: 161,
				Costs: []Cost{
					{
						Peer:      163,
						Candidate: 164,
						Pieces:    708669603840,
						Bytes:     712964571136,
					},
					{
						Peer:      167,
						Candidate: 168,
						Pieces:    725849473024,
						Bytes:     730144440320,
					},
				},
			},
		},
		Peers: []Peer{
			{
				Engine:     "text 172",
				TP:         173,
				Stages:     174,
				DCP:        175,
				Interleave: 176,
				Candidates: []Candidate{
					{
						Name: "text 178",
						Layouts: []GroupLayout{
							{
								Order: []Item{
									{
										Components: 777389080576,
										Axis:       182,
										Mod:        183,
										Div:        184,
									},
									{
										Components: 794568949760,
										Axis:       186,
										Mod:        187,
										Div:        188,
									},
								},
								Group:       189,
								Block:       190,
								Blocks:      191,
								Ring:        192,
								KernelBlock: 193,
								TP:          194,
								Stages:      195,
								DCP:         196,
								Interleave:  197,
							},
							{
								Order: []Item{
									{
										Components: 854698491904,
										Axis:       200,
										Mod:        201,
										Div:        202,
									},
									{
										Components: 871878361088,
										Axis:       204,
										Mod:        205,
										Div:        206,
									},
								},
								Group:       207,
								Block:       208,
								Blocks:      209,
								Ring:        210,
								KernelBlock: 211,
								TP:          212,
								Stages:      213,
								DCP:         214,
								Interleave:  215,
							},
						},
						Attention: 216,
						Costs: []Cost{
							{
								Peer:      218,
								Candidate: 219,
								Pieces:    944892805120,
								Bytes:     949187772416,
							},
							{
								Peer:      222,
								Candidate: 223,
								Pieces:    962072674304,
								Bytes:     966367641600,
							},
						},
					},
					{
						Name: "text 226",
						Layouts: []GroupLayout{
							{
								Order: []Item{
									{
										Components: 983547510784,
										Axis:       230,
										Mod:        231,
										Div:        232,
									},
									{
										Components: 1000727379968,
										Axis:       234,
										Mod:        235,
										Div:        236,
									},
								},
								Group:       237,
								Block:       238,
								Blocks:      239,
								Ring:        240,
								KernelBlock: 241,
								TP:          242,
								Stages:      243,
								DCP:         244,
								Interleave:  245,
							},
							{
								Order: []Item{
									{
										Components: 1060856922112,
										Axis:       248,
										Mod:        249,
										Div:        250,
									},
									{
										Components: 1078036791296,
										Axis:       252,
										Mod:        253,
										Div:        254,
									},
								},
								Group:       255,
								Block:       256,
								Blocks:      257,
								Ring:        258,
								KernelBlock: 259,
								TP:          260,
								Stages:      261,
								DCP:         262,
								Interleave:  263,
							},
						},
						Attention: 264,
						Costs: []Cost{
							{
								Peer:      266,
								Candidate: 267,
								Pieces:    1151051235328,
								Bytes:     1155346202624,
							},
							{
								Peer:      270,
								Candidate: 271,
								Pieces:    1168231104512,
								Bytes:     1172526071808,
							},
						},
					},
				},
				Edges: []Edge{
					{
						Providers:       1181116006400,
						SourceFrom:      276,
						SourceTo:        277,
						DestinationFrom: 278,
						DestinationTo:   279,
						Reach:           280,
						Load:            281,
					},
					{
						Providers:       1211180777472,
						SourceFrom:      283,
						SourceTo:        284,
						DestinationFrom: 285,
						DestinationTo:   286,
						Reach:           287,
						Load:            288,
					},
				},
			},
			{
				Engine:     "text 289",
				TP:         290,
				Stages:     291,
				DCP:        292,
				Interleave: 293,
				Candidates: []Candidate{
					{
						Name: "text 295",
						Layouts: []GroupLayout{
							{
								Order: []Item{
									{
										Components: 1279900254208,
										Axis:       299,
										Mod:        300,
										Div:        301,
									},
									{
										Components: 1297080123392,
										Axis:       303,
										Mod:        304,
										Div:        305,
									},
								},
								Group:       306,
								Block:       307,
								Blocks:      308,
								Ring:        309,
								KernelBlock: 310,
								TP:          311,
								Stages:      312,
								DCP:         313,
								Interleave:  314,
							},
							{
								Order: []Item{
									{
										Components: 1357209665536,
										Axis:       317,
										Mod:        318,
										Div:        319,
									},
									{
										Components: 1374389534720,
										Axis:       321,
										Mod:        322,
										Div:        323,
									},
								},
								Group:       324,
								Block:       325,
								Blocks:      326,
								Ring:        327,
								KernelBlock: 328,
								TP:          329,
								Stages:      330,
								DCP:         331,
								Interleave:  332,
							},
						},
						Attention: 333,
						Costs: []Cost{
							{
								Peer:      335,
								Candidate: 336,
								Pieces:    1447403978752,
								Bytes:     1451698946048,
							},
							{
								Peer:      339,
								Candidate: 340,
								Pieces:    1464583847936,
								Bytes:     1468878815232,
							},
						},
					},
					{
						Name: "text 343",
						Layouts: []GroupLayout{
							{
								Order: []Item{
									{
										Components: 1486058684416,
										Axis:       347,
										Mod:        348,
										Div:        349,
									},
									{
										Components: 1503238553600,
										Axis:       351,
										Mod:        352,
										Div:        353,
									},
								},
								Group:       354,
								Block:       355,
								Blocks:      356,
								Ring:        357,
								KernelBlock: 358,
								TP:          359,
								Stages:      360,
								DCP:         361,
								Interleave:  362,
							},
							{
								Order: []Item{
									{
										Components: 1563368095744,
										Axis:       365,
										Mod:        366,
										Div:        367,
									},
									{
										Components: 1580547964928,
										Axis:       369,
										Mod:        370,
										Div:        371,
									},
								},
								Group:       372,
								Block:       373,
								Blocks:      374,
								Ring:        375,
								KernelBlock: 376,
								TP:          377,
								Stages:      378,
								DCP:         379,
								Interleave:  380,
							},
						},
						Attention: 381,
						Costs: []Cost{
							{
								Peer:      383,
								Candidate: 384,
								Pieces:    1653562408960,
								Bytes:     1657857376256,
							},
							{
								Peer:      387,
								Candidate: 388,
								Pieces:    1670742278144,
								Bytes:     1675037245440,
							},
						},
					},
				},
				Edges: []Edge{
					{
						Providers:       1683627180032,
						SourceFrom:      393,
						SourceTo:        394,
						DestinationFrom: 395,
						DestinationTo:   396,
						Reach:           397,
						Load:            398,
					},
					{
						Providers:       1713691951104,
						SourceFrom:      400,
						SourceTo:        401,
						DestinationFrom: 402,
						DestinationTo:   403,
						Reach:           404,
						Load:            405,
					},
				},
			},
		},
		Engines: []Engine{
			{
				Name:     "text 407",
				Software: "text 408",
				Version:  "text 409",
				Labels: []Label{
					{
						Key:   "text 411",
						Value: "text 412",
					},
					{
						Key:   "text 413",
						Value: "text 414",
					},
				},
				Places: []Place{
					{
						Rank:   416,
						NUMA:   417,
						Load:   418,
						Host:   "text 419",
						Domain: "text 420",
						Devices: []Device{
							{
								ID:   "text 422",
								Kind: 423,
								NUMA: 424,
							},
							{
								ID:   "text 425",
								Kind: 426,
								NUMA: 427,
							},
						},
						Rails: []Rail{
							{
								Name:  "text 429",
								NUMA:  430,
								Gbits: 431,
								Load:  432,
							},
							{
								Name:  "text 433",
								NUMA:  434,
								Gbits: 435,
								Load:  436,
							},
						},
						Labels: []Label{
							{
								Key:   "text 438",
								Value: "text 439",
							},
							{
								Key:   "text 440",
								Value: "text 441",
							},
						},
					},
					{
						Rank:   442,
						NUMA:   443,
						Load:   444,
						Host:   "text 445",
						Domain: "text 446",
						Devices: []Device{
							{
								ID:   "text 448",
								Kind: 449,
								NUMA: 450,
							},
							{
								ID:   "text 451",
								Kind: 452,
								NUMA: 453,
							},
						},
						Rails: []Rail{
							{
								Name:  "text 455",
								NUMA:  456,
								Gbits: 457,
								Load:  458,
							},
							{
								Name:  "text 459",
								NUMA:  460,
								Gbits: 461,
								Load:  462,
							},
						},
						Labels: []Label{
							{
								Key:   "text 464",
								Value: "text 465",
							},
							{
								Key:   "text 466",
								Value: "text 467",
							},
						},
					},
				},
			},
			{
				Name:     "text 468",
				Software: "text 469",
				Version:  "text 470",
				Labels: []Label{
					{
						Key:   "text 472",
						Value: "text 473",
					},
					{
						Key:   "text 474",
						Value: "text 475",
					},
				},
				Places: []Place{
					{
						Rank:   477,
						NUMA:   478,
						Load:   479,
						Host:   "text 480",
						Domain: "text 481",
						Devices: []Device{
							{
								ID:   "text 483",
								Kind: 484,
								NUMA: 485,
							},
							{
								ID:   "text 486",
								Kind: 487,
								NUMA: 488,
							},
						},
						Rails: []Rail{
							{
								Name:  "text 490",
								NUMA:  491,
								Gbits: 492,
								Load:  493,
							},
							{
								Name:  "text 494",
								NUMA:  495,
								Gbits: 496,
								Load:  497,
							},
						},
						Labels: []Label{
							{
								Key:   "text 499",
								Value: "text 500",
							},
							{
								Key:   "text 501",
								Value: "text 502",
							},
						},
					},
					{
						Rank:   503,
						NUMA:   504,
						Load:   505,
						Host:   "text 506",
						Domain: "text 507",
						Devices: []Device{
							{
								ID:   "text 509",
								Kind: 510,
								NUMA: 511,
							},
							{
								ID:   "text 512",
								Kind: 513,
								NUMA: 514,
							},
						},
						Rails: []Rail{
							{
								Name:  "text 516",
								NUMA:  517,
								Gbits: 518,
								Load:  519,
							},
							{
								Name:  "text 520",
								NUMA:  521,
								Gbits: 522,
								Load:  523,
							},
						},
						Labels: []Label{
							{
								Key:   "text 525",
								Value: "text 526",
							},
							{
								Key:   "text 527",
								Value: "text 528",
							},
						},
					},
				},
			},
		},
		Providers: []Provider{
			{
				Name:     "text 530",
				Memories: 531,
				OneSided: 532,
				PeerCPU:  533,
				Strides:  534,
				CRC:      535,
				TLS:      536,
				Piece:    2306397437952,
			},
			{
				Name:     "text 538",
				Memories: 539,
				OneSided: 540,
				PeerCPU:  541,
				Strides:  542,
				CRC:      543,
				TLS:      544,
				Piece:    2340757176320,
			},
		},
		Configuration: Bytes("bytes 546 \xff"),
	},
	"select_layout_out": &SelectLayoutOut{
		Index:  1,
		Reason: "text 2",
	},
	"remap_in": &RemapIn{
		Model:  "text 1",
		Layers: 2,
		Groups: []Group{
			{
				Name:     "text 4",
				State:    5,
				Optional: 6,
				Window:   7,
				Layers: []Range{
					{
						From: 9,
						To:   10,
					},
					{
						From: 11,
						To:   12,
					},
				},
				Components: []Component{
					{
						Name:           "text 14",
						Heads:          15,
						Dim:            16,
						Dtype:          17,
						Bits:           18,
						Unit:           19,
						TokensPerEntry: 20,
						Scales:         21,
					},
					{
						Name:           "text 22",
						Heads:          23,
						Dim:            24,
						Dtype:          25,
						Bits:           26,
						Unit:           27,
						TokensPerEntry: 28,
						Scales:         29,
					},
				},
				Shared: []Share{
					{
						Layer: 31,
						Owner: 32,
					},
					{
						Layer: 33,
						Owner: 34,
					},
				},
			},
			{
				Name:     "text 35",
				State:    36,
				Optional: 37,
				Window:   38,
				Layers: []Range{
					{
						From: 40,
						To:   41,
					},
					{
						From: 42,
						To:   43,
					},
				},
				Components: []Component{
					{
						Name:           "text 45",
						Heads:          46,
						Dim:            47,
						Dtype:          48,
						Bits:           49,
						Unit:           50,
						TokensPerEntry: 51,
						Scales:         52,
					},
					{
						Name:           "text 53",
						Heads:          54,
						Dim:            55,
						Dtype:          56,
						Bits:           57,
						Unit:           58,
						TokensPerEntry: 59,
						Scales:         60,
					},
				},
				Shared: []Share{
					{
						Layer: 62,
						Owner: 63,
					},
					{
						Layer: 64,
						Owner: 65,
					},
				},
			},
		},
		Sides: []Side{
			{
				Engine:     "text 67",
				TP:         68,
				Stages:     69,
				DCP:        70,
				Interleave: 71,
				Pools: []Pool{
					{
						Block:  73,
						Blocks: 74,
						Ring:   75,
					},
					{
						Block:  76,
						Blocks: 77,
						Ring:   78,
					},
				},
				Ranks: []Rank{
					{
						Rank: 80,
						PP:   81,
						TP:   82,
						DCP:  83,
						Parts: []Part{
							{
								Components:    365072220160,
								Group:         86,
								DCPSize:       87,
								DCPInterleave: 88,
								DCPPhase:      89,
								Layers: []Range{
									{
										From: 91,
										To:   92,
									},
									{
										From: 93,
										To:   94,
									},
								},
								Heads: []Range{
									{
										From: 96,
										To:   97,
									},
									{
										From: 98,
										To:   99,
									},
								},
							},
							{
								Components:    429496729600,
								Group:         101,
								DCPSize:       102,
								DCPInterleave: 103,
								DCPPhase:      104,
								Layers: []Range{
									{
										From: 106,
										To:   107,
									},
									{
										From: 108,
										To:   109,
									},
								},
								Heads: []Range{
									{
										From: 111,
										To:   112,
									},
									{
										From: 113,
										To:   114,
									},
								},
							},
						},
					},
					{
						Rank: 115,
						PP:   116,
						TP:   117,
						DCP:  118,
						Parts: []Part{
							{
								Components:    515396075520,
								Group:         121,
								DCPSize:       122,
								DCPInterleave: 123,
								DCPPhase:      124,
								Layers: []Range{
									{
										From: 126,
										To:   127,
									},
									{
										From: 128,
										To:   129,
									},
								},
								Heads: []Range{
									{
										From: 131,
										To:   132,
									},
									{
										From: 133,
										To:   134,
									},
								},
							},
							{
								Components:    579820584960,
								Group:         136,
								DCPSize:       137,
								DCPInterleave: 138,
								DCPPhase:      139,
								Layers: []Range{
									{
										From: 141,
										To:   142,
									},
									{
										From: 143,
										To:   144,
									},
								},
								Heads: []Range{
									{
										From: 146,
										To:   147,
									},
									{
										From: 148,
										To:   149,
									},
								},
							},
						},
					},
				},
			},
			{
				Engine:     "text 150",
				TP:         151,
				Stages:     152,
				DCP:        153,
				Interleave: 154,
				Pools: []Pool{
					{
						Block:  156,
						Blocks: 157,
						Ring:   158,
					},
					{
						Block:  159,
						Blocks: 160,
						Ring:   161,
					},
				},
				Ranks: []Rank{
					{
						Rank: 163,
						PP:   164,
						TP:   165,
						DCP:  166,
						Parts: []Part{
							{
								Components:    721554505728,
								Group:         169,
								DCPSize:       170,
								DCPInterleave: 171,
								DCPPhase:      172,
								Layers: []Range{
									{
										From: 174,
										To:   175,
									},
									{
										From: 176,
										To:   177,
									},
								},
								Heads: []Range{
									{
										From: 179,
										To:   180,
									},
									{
										From: 181,
										To:   182,
									},
								},
							},
							{
								Components:    785979015168,
								Group:         184,
								DCPSize:       185,
								DCPInterleave: 186,
								DCPPhase:      187,
								Layers: []Range{
									{
										From: 189,
										To:   190,
									},
									{
										From: 191,
										To:   192,
									},
								},
								Heads: []Range{
									{
										From: 194,
										To:   195,
									},
									{
										From: 196,
										To:   197,
									},
								},
							},
						},
					},
					{
						Rank: 198,
						PP:   199,
						TP:   200,
						DCP:  201,
						Parts: []Part{
							{
								Components:    871878361088,
								Group:         204,
								DCPSize:       205,
								DCPInterleave: 206,
								DCPPhase:      207,
								Layers: []Range{
									{
										From: 209,
										To:   210,
									},
									{
										From: 211,
										To:   212,
									},
								},
								Heads: []Range{
									{
										From: 214,
										To:   215,
									},
									{
										From: 216,
										To:   217,
									},
								},
							},
							{
								Components:    936302870528,
								Group:         219,
								DCPSize:       220,
								DCPInterleave: 221,
								DCPPhase:      222,
								Layers: []Range{
									{
										From: 224,
										To:   225,
									},
									{
										From: 226,
										To:   227,
									},
								},
								Heads: []Range{
									{
										From: 229,
										To:   230,
									},
									{
										From: 231,
										To:   232,
									},
								},
							},
						},
					},
				},
			},
		},
		Engines: []Engine{
			{
				Name:     "text 234",
				Software: "text 235",
				Version:  "text 236",
				Labels: []Label{
					{
						Key:   "text 238",
						Value: "text 239",
					},
					{
						Key:   "text 240",
						Value: "text 241",
					},
				},
				Places: []Place{
					{
						Rank:   243,
						NUMA:   244,
						Load:   245,
						Host:   "text 246",
						Domain: "text 247",
						Devices: []Device{
							{
								ID:   "text 249",
								Kind: 250,
								NUMA: 251,
							},
							{
								ID:   "text 252",
								Kind: 253,
								NUMA: 254,
							},
						},
						Rails: []Rail{
							{
								Name:  "text 256",
								NUMA:  257,
								Gbits: 258,
								Load:  259,
							},
							{
								Name:  "text 260",
								NUMA:  261,
								Gbits: 262,
								Load:  263,
							},
						},
						Labels: []Label{
							{
								Key:   "text 265",
								Value: "text 266",
							},
							{
								Key:   "text 267",
								Value: "text 268",
							},
						},
					},
					{
						Rank:   269,
						NUMA:   270,
						Load:   271,
						Host:   "text 272",
						Domain: "text 273",
						Devices: []Device{
							{
								ID:   "text 275",
								Kind: 276,
								NUMA: 277,
							},
							{
								ID:   "text 278",
								Kind: 279,
								NUMA: 280,
							},
						},
						Rails: []Rail{
							{
								Name:  "text 282",
								NUMA:  283,
								Gbits: 284,
								Load:  285,
							},
							{
								Name:  "text 286",
								NUMA:  287,
								Gbits: 288,
								Load:  289,
							},
						},
						Labels: []Label{
							{
								Key:   "text 291",
								Value: "text 292",
							},
							{
								Key:   "text 293",
								Value: "text 294",
							},
						},
					},
				},
			},
			{
				Name:     "text 295",
				Software: "text 296",
				Version:  "text 297",
				Labels: []Label{
					{
						Key:   "text 299",
						Value: "text 300",
					},
					{
						Key:   "text 301",
						Value: "text 302",
					},
				},
				Places: []Place{
					{
						Rank:   304,
						NUMA:   305,
						Load:   306,
						Host:   "text 307",
						Domain: "text 308",
						Devices: []Device{
							{
								ID:   "text 310",
								Kind: 311,
								NUMA: 312,
							},
							{
								ID:   "text 313",
								Kind: 314,
								NUMA: 315,
							},
						},
						Rails: []Rail{
							{
								Name:  "text 317",
								NUMA:  318,
								Gbits: 319,
								Load:  320,
							},
							{
								Name:  "text 321",
								NUMA:  322,
								Gbits: 323,
								Load:  324,
							},
						},
						Labels: []Label{
							{
								Key:   "text 326",
								Value: "text 327",
							},
							{
								Key:   "text 328",
								Value: "text 329",
							},
						},
					},
					{
						Rank:   330,
						NUMA:   331,
						Load:   332,
						Host:   "text 333",
						Domain: "text 334",
						Devices: []Device{
							{
								ID:   "text 336",
								Kind: 337,
								NUMA: 338,
							},
							{
								ID:   "text 339",
								Kind: 340,
								NUMA: 341,
							},
						},
						Rails: []Rail{
							{
								Name:  "text 343",
								NUMA:  344,
								Gbits: 345,
								Load:  346,
							},
							{
								Name:  "text 347",
								NUMA:  348,
								Gbits: 349,
								Load:  350,
							},
						},
						Labels: []Label{
							{
								Key:   "text 352",
								Value: "text 353",
							},
							{
								Key:   "text 354",
								Value: "text 355",
							},
						},
					},
				},
			},
		},
		Providers: []Provider{
			{
				Name:     "text 357",
				Memories: 358,
				OneSided: 359,
				PeerCPU:  360,
				Strides:  361,
				CRC:      362,
				TLS:      363,
				Piece:    1563368095744,
			},
			{
				Name:     "text 365",
				Memories: 366,
				OneSided: 367,
				PeerCPU:  368,
				Strides:  369,
				CRC:      370,
				TLS:      371,
				Piece:    1597727834112,
			},
		},
		Edges: []Edge{
			{
				Providers:       1606317768704,
				SourceFrom:      375,
				SourceTo:        376,
				DestinationFrom: 377,
				DestinationTo:   378,
				Reach:           379,
				Load:            380,
			},
			{
				Providers:       1636382539776,
				SourceFrom:      382,
				SourceTo:        383,
				DestinationFrom: 384,
				DestinationTo:   385,
				Reach:           386,
				Load:            387,
			},
		},
		Previous: []Alternative{
			{
				Assignments: []Assignment{
					{
						Components:      1675037245440,
						Group:           391,
						Destination:     392,
						Source:          393,
						LayerFrom:       394,
						LayerTo:         395,
						HeadFrom:        396,
						HeadTo:          397,
						TokenSize:       398,
						TokenInterleave: 399,
						TokenPhase:      400,
					},
					{
						Components:      1722281885696,
						Group:           402,
						Destination:     403,
						Source:          404,
						LayerFrom:       405,
						LayerTo:         406,
						HeadFrom:        407,
						HeadTo:          408,
						TokenSize:       409,
						TokenInterleave: 410,
						TokenPhase:      411,
					},
				},
			},
			{
				Assignments: []Assignment{
					{
						Components:      1773821493248,
						Group:           414,
						Destination:     415,
						Source:          416,
						LayerFrom:       417,
						LayerTo:         418,
						HeadFrom:        419,
						HeadTo:          420,
						TokenSize:       421,
						TokenInterleave: 422,
						TokenPhase:      423,
					},
					{
						Components:      1821066133504,
						Group:           425,
						Destination:     426,
						Source:          427,
						LayerFrom:       428,
						LayerTo:         429,
						HeadFrom:        430,
						HeadTo:          431,
						TokenSize:       432,
						TokenInterleave: 433,
						TokenPhase:      434,
					},
				},
			},
		},
		Configuration: Bytes("bytes 435 \xff"),
	},
	"remap_out": &RemapOut{
		Alternatives: []Alternative{
			{
				Assignments: []Assignment{
					{
						Components:      12884901888,
						Group:           4,
						Destination:     5,
						Source:          6,
						LayerFrom:       7,
						LayerTo:         8,
						HeadFrom:        9,
						HeadTo:          10,
						TokenSize:       11,
						TokenInterleave: 12,
						TokenPhase:      13,
					},
					{
						Components:      60129542144,
						Group:           15,
						Destination:     16,
						Source:          17,
						LayerFrom:       18,
						LayerTo:         19,
						HeadFrom:        20,
						HeadTo:          21,
						TokenSize:       22,
						TokenInterleave: 23,
						TokenPhase:      24,
					},
				},
			},
			{
				Assignments: []Assignment{
					{
						Components:      111669149696,
						Group:           27,
						Destination:     28,
						Source:          29,
						LayerFrom:       30,
						LayerTo:         31,
						HeadFrom:        32,
						HeadTo:          33,
						TokenSize:       34,
						TokenInterleave: 35,
						TokenPhase:      36,
					},
					{
						Components:      158913789952,
						Group:           38,
						Destination:     39,
						Source:          40,
						LayerFrom:       41,
						LayerTo:         42,
						HeadFrom:        43,
						HeadTo:          44,
						TokenSize:       45,
						TokenInterleave: 46,
						TokenPhase:      47,
					},
				},
			},
		},
		Reason: "text 48",
	},
	"route_in": &RouteIn{
		Model:     "text 1",
		Tokens:    2,
		Cached:    3,
		Priority:  4,
		Deadline:  5,
		Lease:     6,
		Chunk:     7,
		Streams:   8,
		Integrity: 9,
		Recompute: 10,
		Alternatives: []Proven{
			{
				Bytes:  51539607552,
				Pieces: 55834574848,
				Flows: []Flow{
					{
						Bytes:       64424509440,
						Pieces:      68719476736,
						Source:      17,
						Destination: 18,
					},
					{
						Bytes:       81604378624,
						Pieces:      85899345920,
						Source:      21,
						Destination: 22,
					},
				},
			},
			{
				Bytes:  98784247808,
				Pieces: 103079215104,
				Flows: []Flow{
					{
						Bytes:       111669149696,
						Pieces:      115964116992,
						Source:      28,
						Destination: 29,
					},
					{
						Bytes:       128849018880,
						Pieces:      133143986176,
						Source:      32,
						Destination: 33,
					},
				},
			},
		},
		Engines: []Engine{
			{
				Name:     "text 35",
				Software: "text 36",
				Version:  "text 37",
				Labels: []Label{
					{
						Key:   "text 39",
						Value: "text 40",
					},
					{
						Key:   "text 41",
						Value: "text 42",
					},
				},
				Places: []Place{
					{
						Rank:   44,
						NUMA:   45,
						Load:   46,
						Host:   "text 47",
						Domain: "text 48",
						Devices: []Device{
							{
								ID:   "text 50",
								Kind: 51,
								NUMA: 52,
							},
							{
								ID:   "text 53",
								Kind: 54,
								NUMA: 55,
							},
						},
						Rails: []Rail{
							{
								Name:  "text 57",
								NUMA:  58,
								Gbits: 59,
								Load:  60,
							},
							{
								Name:  "text 61",
								NUMA:  62,
								Gbits: 63,
								Load:  64,
							},
						},
						Labels: []Label{
							{
								Key:   "text 66",
								Value: "text 67",
							},
							{
								Key:   "text 68",
								Value: "text 69",
							},
						},
					},
					{
						Rank:   70,
						NUMA:   71,
						Load:   72,
						Host:   "text 73",
						Domain: "text 74",
						Devices: []Device{
							{
								ID:   "text 76",
								Kind: 77,
								NUMA: 78,
							},
							{
								ID:   "text 79",
								Kind: 80,
								NUMA: 81,
							},
						},
						Rails: []Rail{
							{
								Name:  "text 83",
								NUMA:  84,
								Gbits: 85,
								Load:  86,
							},
							{
								Name:  "text 87",
								NUMA:  88,
								Gbits: 89,
								Load:  90,
							},
						},
						Labels: []Label{
							{
								Key:   "text 92",
								Value: "text 93",
							},
							{
								Key:   "text 94",
								Value: "text 95",
							},
						},
					},
				},
			},
			{
				Name:     "text 96",
				Software: "text 97",
				Version:  "text 98",
				Labels: []Label{
					{
						Key:   "text 100",
						Value: "text 101",
					},
					{
						Key:   "text 102",
						Value: "text 103",
					},
				},
				Places: []Place{
					{
						Rank:   105,
						NUMA:   106,
						Load:   107,
						Host:   "text 108",
						Domain: "text 109",
						Devices: []Device{
							{
								ID:   "text 111",
								Kind: 112,
								NUMA: 113,
							},
							{
								ID:   "text 114",
								Kind: 115,
								NUMA: 116,
							},
						},
						Rails: []Rail{
							{
								Name:  "text 118",
								NUMA:  119,
								Gbits: 120,
								Load:  121,
							},
							{
								Name:  "text 122",
								NUMA:  123,
								Gbits: 124,
								Load:  125,
							},
						},
						Labels: []Label{
							{
								Key:   "text 127",
								Value: "text 128",
							},
							{
								Key:   "text 129",
								Value: "text 130",
							},
						},
					},
					{
						Rank:   131,
						NUMA:   132,
						Load:   133,
						Host:   "text 134",
						Domain: "text 135",
						Devices: []Device{
							{
								ID:   "text 137",
								Kind: 138,
								NUMA: 139,
							},
							{
								ID:   "text 140",
								Kind: 141,
								NUMA: 142,
							},
						},
						Rails: []Rail{
							{
								Name:  "text 144",
								NUMA:  145,
								Gbits: 146,
								Load:  147,
							},
							{
								Name:  "text 148",
								NUMA:  149,
								Gbits: 150,
								Load:  151,
							},
						},
						Labels: []Label{
							{
								Key:   "text 153",
								Value: "text 154",
							},
							{
								Key:   "text 155",
								Value: "text 156",
							},
						},
					},
				},
			},
		},
		Providers: []Provider{
			{
				Name:     "text 158",
				Memories: 159,
				OneSided: 160,
				PeerCPU:  161,
				Strides:  162,
				CRC:      163,
				TLS:      164,
				Piece:    708669603840,
			},
			{
				Name:     "text 166",
				Memories: 167,
				OneSided: 168,
				PeerCPU:  169,
				Strides:  170,
				CRC:      171,
				TLS:      172,
				Piece:    743029342208,
			},
		},
		Edges: []Edge{
			{
				Providers:       751619276800,
				SourceFrom:      176,
				SourceTo:        177,
				DestinationFrom: 178,
				DestinationTo:   179,
				Reach:           180,
				Load:            181,
			},
			{
				Providers:       781684047872,
				SourceFrom:      183,
				SourceTo:        184,
				DestinationFrom: 185,
				DestinationTo:   186,
				Reach:           187,
				Load:            188,
			},
		},
		Previous: []Decision{
			{
				Alternative: 190,
				Mode:        191,
				Permute:     192,
				Chunk:       193,
				Streams:     194,
				Priority:    195,
				Integrity:   196,
				CRC:         197,
				TLS:         198,
				Recompute:   199,
				Transports: []Transport{
					{
						Provider: 201,
					},
					{
						Provider: 202,
					},
				},
				Rails: []RailChoice{
					{
						Side: 204,
						Rank: 205,
						Rail: 206,
					},
					{
						Side: 207,
						Rank: 208,
						Rail: 209,
					},
				},
			},
			{
				Alternative: 210,
				Mode:        211,
				Permute:     212,
				Chunk:       213,
				Streams:     214,
				Priority:    215,
				Integrity:   216,
				CRC:         217,
				TLS:         218,
				Recompute:   219,
				Transports: []Transport{
					{
						Provider: 221,
					},
					{
						Provider: 222,
					},
				},
				Rails: []RailChoice{
					{
						Side: 224,
						Rank: 225,
						Rail: 226,
					},
					{
						Side: 227,
						Rank: 228,
						Rail: 229,
					},
				},
			},
		},
		Configuration: Bytes("bytes 230 \xff"),
	},
	"route_out": &RouteOut{
		Decisions: []Decision{
			{
				Alternative: 2,
				Mode:        3,
				Permute:     4,
				Chunk:       5,
				Streams:     6,
				Priority:    7,
				Integrity:   8,
				CRC:         9,
				TLS:         10,
				Recompute:   11,
				Transports: []Transport{
					{
						Provider: 13,
					},
					{
						Provider: 14,
					},
				},
				Rails: []RailChoice{
					{
						Side: 16,
						Rank: 17,
						Rail: 18,
					},
					{
						Side: 19,
						Rank: 20,
						Rail: 21,
					},
				},
			},
			{
				Alternative: 22,
				Mode:        23,
				Permute:     24,
				Chunk:       25,
				Streams:     26,
				Priority:    27,
				Integrity:   28,
				CRC:         29,
				TLS:         30,
				Recompute:   31,
				Transports: []Transport{
					{
						Provider: 33,
					},
					{
						Provider: 34,
					},
				},
				Rails: []RailChoice{
					{
						Side: 36,
						Rank: 37,
						Rail: 38,
					},
					{
						Side: 39,
						Rank: 40,
						Rail: 41,
					},
				},
			},
		},
		Reason: "text 42",
	},
}
