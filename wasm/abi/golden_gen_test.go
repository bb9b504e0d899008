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
				Name:  "text 11",
				Heads: 12,
				Layers: []Range{
					{
						From: 14,
						To:   15,
					},
					{
						From: 16,
						To:   17,
					},
				},
				Components: []Component{
					{
						Name:  "text 19",
						Heads: 20,
						Dim:   21,
						Dtype: 22,
						Bits:  23,
					},
					{
						Name:  "text 24",
						Heads: 25,
						Dim:   26,
						Dtype: 27,
						Bits:  28,
					},
				},
			},
			{
				Name:  "text 29",
				Heads: 30,
				Layers: []Range{
					{
						From: 32,
						To:   33,
					},
					{
						From: 34,
						To:   35,
					},
				},
				Components: []Component{
					{
						Name:  "text 37",
						Heads: 38,
						Dim:   39,
						Dtype: 40,
						Bits:  41,
					},
					{
						Name:  "text 42",
						Heads: 43,
						Dim:   44,
						Dtype: 45,
						Bits:  46,
					},
				},
			},
		},
		Candidates: []Candidate{
			{
				Name: "text 48",
				Layouts: []GroupLayout{
					{
						Order: []Item{
							{
								Axis:      51,
								Mod:       52,
								Div:       53,
								Component: 54,
							},
							{
								Axis:      55,
								Mod:       56,
								Div:       57,
								Component: 58,
							},
						},
						Block:  59,
						Blocks: 60,
					},
					{
						Order: []Item{
							{
								Axis:      62,
								Mod:       63,
								Div:       64,
								Component: 65,
							},
							{
								Axis:      66,
								Mod:       67,
								Div:       68,
								Component: 69,
							},
						},
						Block:  70,
						Blocks: 71,
					},
				},
				Attention: 72,
				Costs: []Cost{
					{
						Peer:      74,
						Candidate: 75,
						Pieces:    326417514496,
						Bytes:     330712481792,
					},
					{
						Peer:      78,
						Candidate: 79,
						Pieces:    343597383680,
						Bytes:     347892350976,
					},
				},
			},
			{
				Name: "text 82",
				Layouts: []GroupLayout{
					{
						Order: []Item{
							{
								Axis:      85,
								Mod:       86,
								Div:       87,
								Component: 88,
							},
							{
								Axis:      89,
								Mod:       90,
								Div:       91,
								Component: 92,
							},
						},
						Block:  93,
						Blocks: 94,
					},
					{
						Order: []Item{
							{
								Axis:      96,
								Mod:       97,
								Div:       98,
								Component: 99,
							},
							{
								Axis:      100,
								Mod:       101,
								Div:       102,
								Component: 103,
							},
						},
						Block:  104,
						Blocks: 105,
					},
				},
				Attention: 106,
				Costs: []Cost{
					{
						Peer:      108,
						Candidate: 109,
						Pieces:    472446402560,
						Bytes:     476741369856,
					},
					{
						Peer:      112,
						Candidate: 113,
						Pieces:    489626271744,
						Bytes:     493921239040,
					},
				},
			},
		},
		Peers: []Peer{
			{
				Engine:     "text 117",
				TP:         118,
				Stages:     119,
				DCP:        120,
				Interleave: 121,
				Candidates: []Candidate{
					{
						Name: "text 123",
						Layouts: []GroupLayout{
							{
								Order: []Item{
									{
										Axis:      126,
										Mod:       127,
										Div:       128,
										Component: 129,
									},
									{
										Axis:      130,
										Mod:       131,
										Div:       132,
										Component: 133,
									},
								},
								Block:  134,
								Blocks: 135,
							},
							{
								Order: []Item{
									{
										Axis:      137,
										Mod:       138,
										Div:       139,
										Component: 140,
									},
									{
										Axis:      141,
										Mod:       142,
										Div:       143,
										Component: 144,
									},
								},
								Block:  145,
								Blocks: 146,
							},
						},
						Attention: 147,
						Costs: []Cost{
							{
								Peer:      149,
								Candidate: 150,
								Pieces:    648540061696,
								Bytes:     652835028992,
							},
							{
								Peer:      153,
								Candidate: 154,
								Pieces:    665719930880,
								Bytes:     670014898176,
							},
						},
					},
					{
						Name: "text 157",
						Layouts: []GroupLayout{
							{
								Order: []Item{
									{
										Axis:      160,
										Mod:       161,
										Div:       162,
										Component: 163,
									},
									{
										Axis:      164,
										Mod:       165,
										Div:       166,
										Component: 167,
									},
								},
								Block:  168,
								Blocks: 169,
							},
							{
								Order: []Item{
									{
										Axis:      171,
										Mod:       172,
										Div:       173,
										Component: 174,
									},
									{
										Axis:      175,
										Mod:       176,
										Div:       177,
										Component: 178,
									},
								},
								Block:  179,
								Blocks: 180,
							},
						},
						Attention: 181,
						Costs: []Cost{
							{
								Peer:      183,
								Candidate: 184,
								Pieces:    794568949760,
								Bytes:     798863917056,
							},
							{
								Peer:      187,
								Candidate: 188,
								Pieces:    811748818944,
								Bytes:     816043786240,
							},
						},
					},
				},
			},
			{
				Engine:     "text 191",
				TP:         192,
				Stages:     193,
				DCP:        194,
				Interleave: 195,
				Candidates: []Candidate{
					{
						Name: "text 197",
						Layouts: []GroupLayout{
							{
								Order: []Item{
									{
										Axis:      200,
										Mod:       201,
										Div:       202,
										Component: 203,
									},
									{
										Axis:      204,
										Mod:       205,
										Div:       206,
										Component: 207,
									},
								},
								Block:  208,
								Blocks: 209,
							},
							{
								Order: []Item{
									{
										Axis:      211,
										Mod:       212,
										Div:       213,
										Component: 214,
									},
									{
										Axis:      215,
										Mod:       216,
										Div:       217,
										Component: 218,
									},
								},
								Block:  219,
								Blocks: 220,
							},
						},
						Attention: 221,
						Costs: []Cost{
							{
								Peer:      223,
								Candidate: 224,
								Pieces:    966367641600,
								Bytes:     970662608896,
							},
							{
								Peer:      227,
								Candidate: 228,
								Pieces:    983547510784,
								Bytes:     987842478080,
							},
						},
					},
					{
						Name: "text 231",
						Layouts: []GroupLayout{
							{
								Order: []Item{
									{
										Axis:      234,
										Mod:       235,
										Div:       236,
										Component: 237,
									},
									{
										Axis:      238,
										Mod:       239,
										Div:       240,
										Component: 241,
									},
								},
								Block:  242,
								Blocks: 243,
							},
							{
								Order: []Item{
									{
										Axis:      245,
										Mod:       246,
										Div:       247,
										Component: 248,
									},
									{
										Axis:      249,
										Mod:       250,
										Div:       251,
										Component: 252,
									},
								},
								Block:  253,
								Blocks: 254,
							},
						},
						Attention: 255,
						Costs: []Cost{
							{
								Peer:      257,
								Candidate: 258,
								Pieces:    1112396529664,
								Bytes:     1116691496960,
							},
							{
								Peer:      261,
								Candidate: 262,
								Pieces:    1129576398848,
								Bytes:     1133871366144,
							},
						},
					},
				},
			},
		},
		Labels: []Label{
			{
				Key:   "text 266",
				Value: "text 267",
			},
			{
				Key:   "text 268",
				Value: "text 269",
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
				Name:  "text 4",
				Heads: 5,
				Layers: []Range{
					{
						From: 7,
						To:   8,
					},
					{
						From: 9,
						To:   10,
					},
				},
				Components: []Component{
					{
						Name:  "text 12",
						Heads: 13,
						Dim:   14,
						Dtype: 15,
						Bits:  16,
					},
					{
						Name:  "text 17",
						Heads: 18,
						Dim:   19,
						Dtype: 20,
						Bits:  21,
					},
				},
			},
			{
				Name:  "text 22",
				Heads: 23,
				Layers: []Range{
					{
						From: 25,
						To:   26,
					},
					{
						From: 27,
						To:   28,
					},
				},
				Components: []Component{
					{
						Name:  "text 30",
						Heads: 31,
						Dim:   32,
						Dtype: 33,
						Bits:  34,
					},
					{
						Name:  "text 35",
						Heads: 36,
						Dim:   37,
						Dtype: 38,
						Bits:  39,
					},
				},
			},
		},
		Sides: []Side{
			{
				Engine:     "text 41",
				TP:         42,
				Stages:     43,
				DCP:        44,
				Interleave: 45,
				Pools: []Pool{
					{
						Block:  47,
						Blocks: 48,
					},
					{
						Block:  49,
						Blocks: 50,
					},
				},
				Ranks: []Rank{
					{
						Rank: 52,
						PP:   53,
						TP:   54,
						DCP:  55,
						Host: "text 56",
						Parts: []Part{
							{
								Group:         58,
								DCPSize:       59,
								DCPInterleave: 60,
								DCPPhase:      61,
								Layers: []Range{
									{
										From: 63,
										To:   64,
									},
									{
										From: 65,
										To:   66,
									},
								},
								Heads: []Range{
									{
										From: 68,
										To:   69,
									},
									{
										From: 70,
										To:   71,
									},
								},
							},
							{
								Group:         72,
								DCPSize:       73,
								DCPInterleave: 74,
								DCPPhase:      75,
								Layers: []Range{
									{
										From: 77,
										To:   78,
									},
									{
										From: 79,
										To:   80,
									},
								},
								Heads: []Range{
									{
										From: 82,
										To:   83,
									},
									{
										From: 84,
										To:   85,
									},
								},
							},
						},
					},
					{
						Rank: 86,
						PP:   87,
						TP:   88,
						DCP:  89,
						Host: "text 90",
						Parts: []Part{
							{
								Group:         92,
								DCPSize:       93,
								DCPInterleave: 94,
								DCPPhase:      95,
								Layers: []Range{
									{
										From: 97,
										To:   98,
									},
									{
										From: 99,
										To:   100,
									},
								},
								Heads: []Range{
									{
										From: 102,
										To:   103,
									},
									{
										From: 104,
										To:   105,
									},
								},
							},
							{
								Group:         106,
								DCPSize:       107,
								DCPInterleave: 108,
								DCPPhase:      109,
								Layers: []Range{
									{
										From: 111,
										To:   112,
									},
									{
										From: 113,
										To:   114,
									},
								},
								Heads: []Range{
									{
										From: 116,
										To:   117,
									},
									{
										From: 118,
										To:   119,
									},
								},
							},
						},
					},
				},
				Labels: []Label{
					{
						Key:   "text 121",
						Value: "text 122",
					},
					{
						Key:   "text 123",
						Value: "text 124",
					},
				},
			},
			{
				Engine:     "text 125",
				TP:         126,
				Stages:     127,
				DCP:        128,
				Interleave: 129,
				Pools: []Pool{
					{
						Block:  131,
						Blocks: 132,
					},
					{
						Block:  133,
						Blocks: 134,
					},
				},
				Ranks: []Rank{
					{
						Rank: 136,
						PP:   137,
						TP:   138,
						DCP:  139,
						Host: "text 140",
						Parts: []Part{
							{
								Group:         142,
								DCPSize:       143,
								DCPInterleave: 144,
								DCPPhase:      145,
								Layers: []Range{
									{
										From: 147,
										To:   148,
									},
									{
										From: 149,
										To:   150,
									},
								},
								Heads: []Range{
									{
										From: 152,
										To:   153,
									},
									{
										From: 154,
										To:   155,
									},
								},
							},
							{
								Group:         156,
								DCPSize:       157,
								DCPInterleave: 158,
								DCPPhase:      159,
								Layers: []Range{
									{
										From: 161,
										To:   162,
									},
									{
										From: 163,
										To:   164,
									},
								},
								Heads: []Range{
									{
										From: 166,
										To:   167,
									},
									{
										From: 168,
										To:   169,
									},
								},
							},
						},
					},
					{
						Rank: 170,
						PP:   171,
						TP:   172,
						DCP:  173,
						Host: "text 174",
						Parts: []Part{
							{
								Group:         176,
								DCPSize:       177,
								DCPInterleave: 178,
								DCPPhase:      179,
								Layers: []Range{
									{
										From: 181,
										To:   182,
									},
									{
										From: 183,
										To:   184,
									},
								},
								Heads: []Range{
									{
										From: 186,
										To:   187,
									},
									{
										From: 188,
										To:   189,
									},
								},
							},
							{
								Group:         190,
								DCPSize:       191,
								DCPInterleave: 192,
								DCPPhase:      193,
								Layers: []Range{
									{
										From: 195,
										To:   196,
									},
									{
										From: 197,
										To:   198,
									},
								},
								Heads: []Range{
									{
										From: 200,
										To:   201,
									},
									{
										From: 202,
										To:   203,
									},
								},
							},
						},
					},
				},
				Labels: []Label{
					{
						Key:   "text 205",
						Value: "text 206",
					},
					{
						Key:   "text 207",
						Value: "text 208",
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
