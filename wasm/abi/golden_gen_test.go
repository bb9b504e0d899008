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
		Groups: []Group{
			{
				Name:     "text 11",
				State:    12,
				Optional: 13,
				Window:   14,
				Layers: []Range{
					{
						From: 16,
						To:   17,
					},
					{
						From: 18,
						To:   19,
					},
				},
				Components: []Component{
					{
						Name:           "text 21",
						Heads:          22,
						Dim:            23,
						Dtype:          24,
						Bits:           25,
						Unit:           26,
						TokensPerEntry: 27,
						Scales:         28,
					},
					{
						Name:           "text 29",
						Heads:          30,
						Dim:            31,
						Dtype:          32,
						Bits:           33,
						Unit:           34,
						TokensPerEntry: 35,
						Scales:         36,
					},
				},
				Shared: []Share{
					{
						Layer: 38,
						Owner: 39,
					},
					{
						Layer: 40,
						Owner: 41,
					},
				},
			},
			{
				Name:     "text 42",
				State:    43,
				Optional: 44,
				Window:   45,
				Layers: []Range{
					{
						From: 47,
						To:   48,
					},
					{
						From: 49,
						To:   50,
					},
				},
				Components: []Component{
					{
						Name:           "text 52",
						Heads:          53,
						Dim:            54,
						Dtype:          55,
						Bits:           56,
						Unit:           57,
						TokensPerEntry: 58,
						Scales:         59,
					},
					{
						Name:           "text 60",
						Heads:          61,
						Dim:            62,
						Dtype:          63,
						Bits:           64,
						Unit:           65,
						TokensPerEntry: 66,
						Scales:         67,
					},
				},
				Shared: []Share{
					{
						Layer: 69,
						Owner: 70,
					},
					{
						Layer: 71,
						Owner: 72,
					},
				},
			},
		},
		Candidates: []Candidate{
			{
				Name: "text 74",
				Layouts: []GroupLayout{
					{
						Order: []Item{
							{
								Components: 330712481792,
								Axis:       78,
								Mod:        79,
								Div:        80,
							},
							{
								Components: 347892350976,
								Axis:       82,
								Mod:        83,
								Div:        84,
							},
						},
						Group:       85,
						Block:       86,
						Blocks:      87,
						Ring:        88,
						KernelBlock: 89,
						TP:          90,
						Stages:      91,
						DCP:         92,
						Interleave:  93,
					},
					{
						Order: []Item{
							{
								Components: 408021893120,
								Axis:       96,
								Mod:        97,
								Div:        98,
							},
							{
								Components: 425201762304,
								Axis:       100,
								Mod:        101,
								Div:        102,
							},
						},
						Group:       103,
						Block:       104,
						Blocks:      105,
						Ring:        106,
						KernelBlock: 107,
						TP:          108,
						Stages:      109,
						DCP:         110,
						Interleave:  111,
					},
				},
				Attention: 112,
				Costs: []Cost{
					{
						Peer:      114,
						Candidate: 115,
						Pieces:    498216206336,
						Bytes:     502511173632,
					},
					{
						Peer:      118,
						Candidate: 119,
						Pieces:    515396075520,
						Bytes:     519691042816,
					},
				},
			},
			{
				Name: "text 122",
				Layouts: []GroupLayout{
					{
						Order: []Item{
							{
								Components: 536870912000,
								Axis:       126,
								Mod:        127,
								Div:        128,
							},
							{
								Components: 554050781184,
								Axis:       130,
								Mod:        131,
								Div:        132,
							},
						},
						Group:       133,
						Block:       134,
						Blocks:      135,
						Ring:        136,
						KernelBlock: 137,
						TP:          138,
						Stages:      139,
						DCP:         140,
						Interleave:  141,
					},
					{
						Order: []Item{
							{
								Components: 614180323328,
								Axis:       144,
								Mod:        145,
								Div:        146,
							},
							{
								Components: 631360192512,
								Axis:       148,
								Mod:        149,
								Div:        150,
							},
						},
						Group:       151,
						Block:       152,
						Blocks:      153,
						Ring:        154,
						KernelBlock: 155,
						TP:          156,
						Stages:      157,
						DCP:         158,
						Interleave:  159,
					},
				},
				Attention: 160,
				Costs: []Cost{
					{
						Peer:      162,
						Candidate: 163,
						Pieces:    704374636544,
						Bytes:     708669603840,
					},
					{
						Peer:      166,
						Candidate: 167,
						Pieces:    721554505728,
						Bytes:     725849473024,
					},
				},
			},
		},
		Peers: []Peer{
			{
				Engine:     "text 171",
				TP:         172,
				Stages:     173,
				DCP:        174,
				Interleave: 175,
				Candidates: []Candidate{
					{
						Name: "text 177",
						Layouts: []GroupLayout{
							{
								Order: []Item{
									{
										Components: 773094113280,
										Axis:       181,
										Mod:        182,
										Div:        183,
									},
									{
										Components: 790273982464,
										Axis:       185,
										Mod:        186,
										Div:        187,
									},
								},
								Group:       188,
								Block:       189,
								Blocks:      190,
								Ring:        191,
								KernelBlock: 192,
								TP:          193,
								Stages:      194,
								DCP:         195,
								Interleave:  196,
							},
							{
								Order: []Item{
									{
										Components: 850403524608,
										Axis:       199,
										Mod:        200,
										Div:        201,
									},
									{
										Components: 867583393792,
										Axis:       203,
										Mod:        204,
										Div:        205,
									},
								},
								Group:       206,
								Block:       207,
								Blocks:      208,
								Ring:        209,
								KernelBlock: 210,
								TP:          211,
								Stages:      212,
								DCP:         213,
								Interleave:  214,
							},
						},
						Attention: 215,
						Costs: []Cost{
							{
								Peer:      217,
								Candidate: 218,
								Pieces:    940597837824,
								Bytes:     944892805120,
							},
							{
								Peer:      221,
								Candidate: 222,
								Pieces:    957777707008,
								Bytes:     962072674304,
							},
						},
					},
					{
						Name: "text 225",
						Layouts: []GroupLayout{
							{
								Order: []Item{
									{
										Components: 979252543488,
										Axis:       229,
										Mod:        230,
										Div:        231,
									},
									{
										Components: 996432412672,
										Axis:       233,
										Mod:        234,
										Div:        235,
									},
								},
								Group:       236,
								Block:       237,
								Blocks:      238,
								Ring:        239,
								KernelBlock: 240,
								TP:          241,
								Stages:      242,
								DCP:         243,
								Interleave:  244,
							},
							{
								Order: []Item{
									{
										Components: 1056561954816,
										Axis:       247,
										Mod:        248,
										Div:        249,
									},
									{
										Components: 1073741824000,
										Axis:       251,
										Mod:        252,
										Div:        253,
									},
								},
								Group:       254,
								Block:       255,
								Blocks:      256,
								Ring:        257,
								KernelBlock: 258,
								TP:          259,
								Stages:      260,
								DCP:         261,
								Interleave:  262,
							},
						},
						Attention: 263,
						Costs: []Cost{
							{
								Peer:      265,
								Candidate: 266,
								Pieces:    1146756268032,
								Bytes:     1151051235328,
							},
							{
								Peer:      269,
								Candidate: 270,
								Pieces:    1163936137216,
								Bytes:     1168231104512,
							},
						},
					},
				},
			},
			{
				Engine:     "text 273",
				TP:         274,
				Stages:     275,
				DCP:        276,
				Interleave: 277,
				Candidates: []Candidate{
					{
						Name: "text 279",
						Layouts: []GroupLayout{
							{
								Order: []Item{
									{
										Components: 1211180777472,
										Axis:       283,
										Mod:        284,
										Div:        285,
									},
									{
										Components: 1228360646656,
										Axis:       287,
										Mod:        288,
										Div:        289,
									},
								},
								Group:       290,
								Block:       291,
								Blocks:      292,
								Ring:        293,
								KernelBlock: 294,
								TP:          295,
								Stages:      296,
								DCP:         297,
								Interleave:  298,
							},
							{
								Order: []Item{
									{
										Components: 1288490188800,
										Axis:       301,
										Mod:        302,
										Div:        303,
									},
									{
										Components: 1305670057984,
										Axis:       305,
										Mod:        306,
										Div:        307,
									},
								},
								Group:       308,
								Block:       309,
								Blocks:      310,
								Ring:        311,
								KernelBlock: 312,
								TP:          313,
								Stages:      314,
								DCP:         315,
								Interleave:  316,
							},
						},
						Attention: 317,
						Costs: []Cost{
							{
								Peer:      319,
								Candidate: 320,
								Pieces:    1378684502016,
								Bytes:     1382979469312,
							},
							{
								Peer:      323,
								Candidate: 324,
								Pieces:    1395864371200,
								Bytes:     1400159338496,
							},
						},
					},
					{
						Name: "text 327",
						Layouts: []GroupLayout{
							{
								Order: []Item{
									{
										Components: 1417339207680,
										Axis:       331,
										Mod:        332,
										Div:        333,
									},
									{
										Components: 1434519076864,
										Axis:       335,
										Mod:        336,
										Div:        337,
									},
								},
								Group:       338,
								Block:       339,
								Blocks:      340,
								Ring:        341,
								KernelBlock: 342,
								TP:          343,
								Stages:      344,
								DCP:         345,
								Interleave:  346,
							},
							{
								Order: []Item{
									{
										Components: 1494648619008,
										Axis:       349,
										Mod:        350,
										Div:        351,
									},
									{
										Components: 1511828488192,
										Axis:       353,
										Mod:        354,
										Div:        355,
									},
								},
								Group:       356,
								Block:       357,
								Blocks:      358,
								Ring:        359,
								KernelBlock: 360,
								TP:          361,
								Stages:      362,
								DCP:         363,
								Interleave:  364,
							},
						},
						Attention: 365,
						Costs: []Cost{
							{
								Peer:      367,
								Candidate: 368,
								Pieces:    1584842932224,
								Bytes:     1589137899520,
							},
							{
								Peer:      371,
								Candidate: 372,
								Pieces:    1602022801408,
								Bytes:     1606317768704,
							},
						},
					},
				},
			},
		},
		Labels: []Label{
			{
				Key:   "text 376",
				Value: "text 377",
			},
			{
				Key:   "text 378",
				Value: "text 379",
			},
		},
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
						Host: "text 84",
						Parts: []Part{
							{
								Components:    369367187456,
								Group:         87,
								DCPSize:       88,
								DCPInterleave: 89,
								DCPPhase:      90,
								Layers: []Range{
									{
										From: 92,
										To:   93,
									},
									{
										From: 94,
										To:   95,
									},
								},
								Heads: []Range{
									{
										From: 97,
										To:   98,
									},
									{
										From: 99,
										To:   100,
									},
								},
							},
							{
								Components:    433791696896,
								Group:         102,
								DCPSize:       103,
								DCPInterleave: 104,
								DCPPhase:      105,
								Layers: []Range{
									{
										From: 107,
										To:   108,
									},
									{
										From: 109,
										To:   110,
									},
								},
								Heads: []Range{
									{
										From: 112,
										To:   113,
									},
									{
										From: 114,
										To:   115,
									},
								},
							},
						},
					},
					{
						Rank: 116,
						PP:   117,
						TP:   118,
						DCP:  119,
						Host: "text 120",
						Parts: []Part{
							{
								Components:    523986010112,
								Group:         123,
								DCPSize:       124,
								DCPInterleave: 125,
								DCPPhase:      126,
								Layers: []Range{
									{
										From: 128,
										To:   129,
									},
									{
										From: 130,
										To:   131,
									},
								},
								Heads: []Range{
									{
										From: 133,
										To:   134,
									},
									{
										From: 135,
										To:   136,
									},
								},
							},
							{
								Components:    588410519552,
								Group:         138,
								DCPSize:       139,
								DCPInterleave: 140,
								DCPPhase:      141,
								Layers: []Range{
									{
										From: 143,
										To:   144,
									},
									{
										From: 145,
										To:   146,
									},
								},
								Heads: []Range{
									{
										From: 148,
										To:   149,
									},
									{
										From: 150,
										To:   151,
									},
								},
							},
						},
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
			{
				Engine:     "text 157",
				TP:         158,
				Stages:     159,
				DCP:        160,
				Interleave: 161,
				Pools: []Pool{
					{
						Block:  163,
						Blocks: 164,
						Ring:   165,
					},
					{
						Block:  166,
						Blocks: 167,
						Ring:   168,
					},
				},
				Ranks: []Rank{
					{
						Rank: 170,
						PP:   171,
						TP:   172,
						DCP:  173,
						Host: "text 174",
						Parts: []Part{
							{
								Components:    755914244096,
								Group:         177,
								DCPSize:       178,
								DCPInterleave: 179,
								DCPPhase:      180,
								Layers: []Range{
									{
										From: 182,
										To:   183,
									},
									{
										From: 184,
										To:   185,
									},
								},
								Heads: []Range{
									{
										From: 187,
										To:   188,
									},
									{
										From: 189,
										To:   190,
									},
								},
							},
							{
								Components:    820338753536,
								Group:         192,
								DCPSize:       193,
								DCPInterleave: 194,
								DCPPhase:      195,
								Layers: []Range{
									{
										From: 197,
										To:   198,
									},
									{
										From: 199,
										To:   200,
									},
								},
								Heads: []Range{
									{
										From: 202,
										To:   203,
									},
									{
										From: 204,
										To:   205,
									},
								},
							},
						},
					},
					{
						Rank: 206,
						PP:   207,
						TP:   208,
						DCP:  209,
						Host: "text 210",
						Parts: []Part{
							{
								Components:    910533066752,
								Group:         213,
								DCPSize:       214,
								DCPInterleave: 215,
								DCPPhase:      216,
								Layers: []Range{
									{
										From: 218,
										To:   219,
									},
									{
										From: 220,
										To:   221,
									},
								},
								Heads: []Range{
									{
										From: 223,
										To:   224,
									},
									{
										From: 225,
										To:   226,
									},
								},
							},
							{
								Components:    974957576192,
								Group:         228,
								DCPSize:       229,
								DCPInterleave: 230,
								DCPPhase:      231,
								Layers: []Range{
									{
										From: 233,
										To:   234,
									},
									{
										From: 235,
										To:   236,
									},
								},
								Heads: []Range{
									{
										From: 238,
										To:   239,
									},
									{
										From: 240,
										To:   241,
									},
								},
							},
						},
					},
				},
				Labels: []Label{
					{
						Key:   "text 243",
						Value: "text 244",
					},
					{
						Key:   "text 245",
						Value: "text 246",
					},
				},
			},
		},
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
}
